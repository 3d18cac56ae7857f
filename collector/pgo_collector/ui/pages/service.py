"""What all pages of a service have: what is selected, how fresh and representative it is, and the tabs."""

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
from pgo_collector.model.selection import Selection
from pgo_collector.ui.links import Links
from pgo_collector.ui.sources import Sources


@dataclass(frozen=True, slots=True)
class Shown:
    """A service and what is selected of it; `stored` and `summary` are None where there is nothing."""

    selection: Selection
    links: Links
    stored: StoredService | None
    summary: Summary | None


async def shown(request: Request, sources: Sources, page: str, *own: str) -> Shown:
    """What a request for a page of a service is about; `own` are the page's parameters.

    Raises ParameterInvalid.
    """
    selection = selection_of(request)
    links = Links.of(request, page, *own)
    services = await asyncio.to_thread(sources.inventory.services, selection.service, 1)
    summary = await asyncio.to_thread(sources.summaries.summary, selection)
    return Shown(selection, links, next(iter(services), None), summary)


async def service_page(
    request: Request,
    sources: Sources,
    what: Shown,
    template: str,
    status: HTTPStatus = HTTPStatus.OK,
    **context: Any,
) -> Response:
    """A page of a service."""
    return await sources.rendering.page(
        request,
        template,
        status,
        service=what.selection.service,
        selection=what.selection,
        links=what.links,
        stored=what.stored,
        summary=what.summary,
        has_speedscope=sources.has_speedscope,
        now=time.time_ns(),
        **context,
    )


async def nothing_page(request: Request, sources: Sources, what: Shown) -> Response:
    """That nothing is selected."""
    return await service_page(request, sources, what, "nothing.html", HTTPStatus.NOT_FOUND)
