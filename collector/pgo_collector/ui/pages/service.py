"""Parts that the pages of a service share: its selection, how fresh and representative it is, and tabs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from pprof_merge import FORMATS
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.catalog.inventory import StoredService
from pgo_collector.catalog.summaries import VERSION, Summary
from pgo_collector.http.selections import selection_of
from pgo_collector.model.profile_types import CPU, KEPT_APART, LATENCY_TYPES, PROCESS_CPU
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import Scope, Series
from pgo_collector.releases.folder import Releases
from pgo_collector.ui.comparisons import Comparison, comparisons, release_time
from pgo_collector.ui.links import Links, site_of, speedscope_link
from pgo_collector.ui.pages.visitors import token_of
from pgo_collector.ui.selection_bar import CHOOSE, FIND, MEANINGS, selection_bar
from pgo_collector.ui.sessions import session_of
from pgo_collector.ui.sources import Sources
from pgo_collector.ui.timeline_drawing import newest_releases, presets, timeline_of


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
    links = Links.of(request, page, *own, CHOOSE, FIND)
    services = await asyncio.to_thread(sources.inventory.services, Scope((selection.service,)), 1)
    summary = await sources.fleet.kept.answer(
        "summary",
        [selection],
        lambda: asyncio.to_thread(sources.summaries.summary, selection),
        lambda _: True,  # the catalog has it all
    )
    return SelectedProfiles(selection, links, next(iter(services), None), summary)


async def service_page(
    request: Request,
    sources: Sources,
    selected: SelectedProfiles,
    template: str,
    status: HTTPStatus = HTTPStatus.OK,
    **values: Any,
) -> Response:
    """Return a page of a service; the template also gets `values`.

    Its facts describe the selected profiles, or the `shown` ones where the page shows only some of them.
    """
    if sources.is_of_files:
        parts = _parts_of_file(request, sources, selected)
    else:
        parts = await _parts_of_selection(request, sources, selected)
    return await sources.rendering.page(
        request,
        template,
        status,
        meanings=MEANINGS,
        service=selected.selection.service,
        selection=selected.selection,
        links=selected.links,
        stored=selected.stored,
        summary=selected.summary,
        shown=values.pop("shown", selected.summary),
        has_speedscope=sources.has_speedscope,
        tracked=_tracked_type(selected),
        now=time.time_ns(),
        **parts,
        **values,
    )


def name_of(sources: Sources, service: str) -> str:
    """Return the name of a service, or of the file that is opened as one. Raises NoSuchFile."""
    return sources.opened.named(service).name if sources.is_of_files else service


def _parts_of_file(request: Request, sources: Sources, selected: SelectedProfiles) -> dict[str, Any]:
    """Return what the pages of an opened file have in place of the selection. Raises NoSuchFile."""
    file, links = sources.opened.named(selected.selection.service), selected.links
    others = [
        other
        for other in sources.opened.of(session_of(token_of(request)))
        if other.type == file.type and other != file
    ]
    return {
        "file": file,
        "timeline": None,
        "comparisons": [
            Comparison(f"with {other.name}", links.to("diff", base_service=other.service)) for other in others
        ],
        "formats": list(FORMATS.values()),
        "speedscope": speedscope_link(site_of(request), links),
    }


async def _parts_of_selection(
    request: Request, sources: Sources, selected: SelectedProfiles
) -> dict[str, Any]:
    """Return the selection bar, the comparisons that the profiles offer, and the timeline."""
    now, offered = time.time_ns(), list[Comparison]()
    bar = await selection_bar(request, sources.summaries, selected.selection, selected.links)
    if selected.summary is not None:
        blobs = sources.reports.store.blobs.storage
        released = await asyncio.to_thread(release_time, blobs, selected.selection.service)
        offered = comparisons(selected.selection, selected.links, selected.summary, released, now)
    return {"file": None, "bar": bar, "comparisons": offered, **await _timeline(sources, selected)}


async def _timeline(sources: Sources, selected: SelectedProfiles) -> dict[str, Any]:
    """Return the timeline of the selected profiles, and links to other times, as values for the template."""
    selection, links, summary = selected.selection, selected.links, selected.summary
    if summary is None:
        return {"timeline": None}
    activity = await sources.activities.make(selection, summary, links.own.get("sample_type", ""))
    names = [value.text for value in summary.versions.listed]
    older = await asyncio.to_thread(sources.summaries.seen_before, selection, VERSION, names)
    releases = Releases(sources.reports.store.blobs.storage, Series(selection.service, CPU))
    made = await asyncio.to_thread(newest_releases, releases)
    new = [value for value in summary.versions.listed if value.text not in older]
    timeline = timeline_of(activity, new, made)
    return {"timeline": timeline, "activity": activity, "presets": presets(links, activity)}


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
