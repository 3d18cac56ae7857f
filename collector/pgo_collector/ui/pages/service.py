"""Parts that the pages of a service share: its selection, how fresh and representative it is, and tabs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.catalog.inventory import StoredService
from pgo_collector.catalog.summaries import Summary
from pgo_collector.http.selections import selection_of
from pgo_collector.model.profile_types import CPU, KEPT_APART, LATENCY_TYPES, PROCESS_CPU
from pgo_collector.model.selection import Selection
from pgo_collector.ui.comparisons import Comparison, comparisons, release_time
from pgo_collector.ui.links import Links
from pgo_collector.ui.sources import Sources


@dataclass(frozen=True, slots=True)
class SelectedProfiles:
    """A service and the profiles that a request selects.

    `stored` is None if the service has no profiles, `summary` if no profile matches the selection.
    """

    selection: Selection
    links: Links
    stored: StoredService | None
    summary: Summary | None


async def selected_profiles(request: Request, sources: Sources, page: str, *own: str) -> SelectedProfiles:
    """Return what a request for a page of a service selects; `own` are the page's own parameters.

    Raises ParameterInvalid.
    """
    selection = selection_of(request)
    links = Links.of(request, page, *own)
    services = await asyncio.to_thread(sources.inventory.services, selection.service, 1)
    summary = await asyncio.to_thread(sources.summaries.summary, selection)
    return SelectedProfiles(selection, links, next(iter(services), None), summary)


async def service_page(
    request: Request,
    sources: Sources,
    selected: SelectedProfiles,
    template: str,
    status: HTTPStatus = HTTPStatus.OK,
    **values: Any,
) -> Response:
    """Return a page of a service; the template also gets `values`."""
    now, offered = time.time_ns(), list[Comparison]()
    if selected.summary is not None:
        folder = sources.reports.store.folder
        released = await asyncio.to_thread(release_time, folder, selected.selection.service)
        offered = comparisons(selected.selection, selected.links, selected.summary, released, now)
    return await sources.rendering.page(
        request,
        template,
        status,
        comparisons=offered,
        service=selected.selection.service,
        selection=selected.selection,
        links=selected.links,
        stored=selected.stored,
        summary=selected.summary,
        has_speedscope=sources.has_speedscope,
        tracked=_tracked_type(selected),
        now=now,
        **values,
    )


def _tracked_type(selected: SelectedProfiles) -> str | None:
    """Return the type that the link to the latencies is for: the selected one, or one that is stored.

    It is None if the service has no profiles of latency trackers.
    """
    stored = {each.type for each in selected.stored.types} if selected.stored else set()
    wanted = (selected.selection.type, *LATENCY_TYPES)
    return next((type_ for type_ in wanted if type_ in stored & {*LATENCY_TYPES}), None)


async def no_profiles_page(request: Request, sources: Sources, selected: SelectedProfiles) -> Response:
    """Return the page that says that no profile matches the selection, and what is kept apart from it."""
    apart = None
    if selected.selection.type == CPU and selected.stored:
        apart = next((of for of in selected.stored.types if of.type == PROCESS_CPU), None)
    return await service_page(
        request,
        sources,
        selected,
        "no_profiles.html",
        HTTPStatus.NOT_FOUND,
        apart=apart and {"type": apart.type, "reason": KEPT_APART},
    )
