"""/ui/services/{service}/function: the callers, callees and lines of one function."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.errors import NoSuchFunction
from pgo_collector.http.openapi import LATENCIES, METHODS, PATTERNS
from pgo_collector.http.parameters import single_parameter, whole_number
from pgo_collector.http.selections import first_value, latencies_of, patterns_of
from pgo_collector.queries.functions import fleet_use, function_of
from pgo_collector.ui.pages.service import no_profiles_page, selected_profiles, service_page
from pgo_collector.ui.pages.top import MAX_ROWS, largest_names
from pgo_collector.ui.pages.visitors import require_service
from pgo_collector.ui.sandwich_drawing import ROW_HEIGHT, boxes_of
from pgo_collector.ui.sources import Sources

_DEFAULT_ROWS = 25
_PART = (*LATENCIES, *PATTERNS)


def function_routes(sources: Sources) -> APIRouter:
    """Return the router with the page."""
    router = APIRouter(dependencies=[Depends(require_service(sources.sessions))])

    @router.api_route("/services/{service}/function", methods=METHODS)
    async def function(request: Request) -> Response:
        selected = await selected_profiles(request, sources, "function", "function", "n", *_PART)
        latencies, patterns = latencies_of(request), patterns_of(request)
        most = whole_number(request, "n") if first_value(request, "n") else _DEFAULT_ROWS
        if selected.summary is None:
            return await no_profiles_page(request, sources, selected)
        found = None
        status, similar = HTTPStatus.OK, None
        if first_value(request, "function"):
            _, name = single_parameter(request, ("function",))
            try:
                use = await fleet_use(sources.fleet, selected.selection, name, latencies, patterns)
            except NoSuchFunction as error:
                status, similar = error.status, error.similar
            else:
                version = selected.summary.newest_version
                found = await asyncio.to_thread(function_of, use, most, sources.source_links, version)
        if found is None and not similar:
            similar = await largest_names(sources, selected.selection, "function", latencies)
        rows = max(found.n_callers, found.n_callees, found.n_lines) if found else 0
        return await service_page(
            request,
            sources,
            selected,
            "function.html",
            status,
            function=found,
            boxes=boxes_of(found, selected.links) if found else [],
            row_height=ROW_HEIGHT,
            widest=max(found.cum_share, 0.001) if found else 1,
            similar=similar,
            latencies=latencies,
            patterns=patterns,
            more=min(most * 4, MAX_ROWS) if most < min(rows, MAX_ROWS) else None,
        )

    return router
