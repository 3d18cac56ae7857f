"""/ui/services/{service}/top: the functions, packages, files or lines with the largest values."""

from __future__ import annotations

import asyncio
from typing import cast

from fastapi import APIRouter, Depends
from pprof_merge import GROUPINGS, Grouping, LatencyRange, TopOrder
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.http.openapi import LATENCIES, METHODS, PATTERNS
from pgo_collector.http.parameters import one_of, whole_number
from pgo_collector.http.selections import first_value, latencies_of, patterns_of
from pgo_collector.model.selection import Selection
from pgo_collector.queries.tables import fleet_table
from pgo_collector.queries.tops import top_of
from pgo_collector.ui.pages.service import no_profiles_page, selected_profiles, service_page
from pgo_collector.ui.pages.visitors import require_service
from pgo_collector.ui.sources import Sources

DEFAULT_ROWS = 50
MAX_ROWS = 1000
_MAX_SUGGESTED = 20


def top_routes(sources: Sources) -> APIRouter:
    """Return the router with the page."""
    router = APIRouter(dependencies=[Depends(require_service(sources.sessions))])

    @router.api_route("/services/{service}/top", methods=METHODS)
    async def top(request: Request) -> Response:
        selected = await selected_profiles(request, sources, "top", "by", "sort", "n", *LATENCIES, *PATTERNS)
        (by, sort, most), latencies = table_parameters(request), latencies_of(request)
        patterns = patterns_of(request)
        if selected.summary is None:
            return await no_profiles_page(request, sources, selected)
        table = await fleet_table(sources.fleet, selected.selection, by, latencies, patterns)
        found = await asyncio.to_thread(top_of, table, by, sort, most)
        return await service_page(
            request,
            sources,
            selected,
            "top.html",
            top=found,
            latencies=latencies,
            patterns=patterns,
            groupings=[*GROUPINGS],
            more=min(most * 4, MAX_ROWS) if most < min(found.names, MAX_ROWS) else None,
        )

    return router


def table_parameters(request: Request) -> tuple[Grouping, TopOrder, int]:
    """Return the grouping, the order and the number of rows of a request. Raises ParameterInvalid."""
    by = cast("Grouping", one_of(request, "by"))
    sort = cast("TopOrder", one_of(request, "sort"))
    return by, sort, whole_number(request, "n") if first_value(request, "n") else DEFAULT_ROWS


async def largest_names(
    sources: Sources, selection: Selection, by: Grouping, latencies: LatencyRange
) -> list[str]:
    """Return the names with the largest cumulative values in a selection, for a visitor to choose from."""
    table = await fleet_table(sources.fleet, selection, by, latencies)
    top = await asyncio.to_thread(top_of, table, by, "cum", _MAX_SUGGESTED)
    return [row.name for row in top.rows]
