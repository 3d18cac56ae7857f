"""/ui/services/{service}/top: the functions, packages or files that take most."""

from __future__ import annotations

import asyncio
from typing import cast

from fastapi import APIRouter, Depends
from pprof_merge import GROUPINGS, Grouping, TopOrder
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.http.openapi import METHODS
from pgo_collector.http.parameters import one_of, whole_number
from pgo_collector.http.selections import first
from pgo_collector.queries.tables import fleet_table
from pgo_collector.queries.tops import top_of
from pgo_collector.ui.pages.service import nothing_page, service_page, shown
from pgo_collector.ui.pages.visitors import sees_service
from pgo_collector.ui.sources import Sources

FEWEST_ROWS = 50
MOST_ROWS = 1000


def top_routes(sources: Sources) -> APIRouter:
    """The route."""
    router = APIRouter(dependencies=[Depends(sees_service(sources.sessions))])

    @router.api_route("/services/{service}/top", methods=METHODS)
    async def top(request: Request) -> Response:
        what = await shown(request, sources, "top", "by", "sort", "n")
        by, sort, most = table_asked(request)
        if what.summary is None:
            return await nothing_page(request, sources, what)
        table = await fleet_table(sources.fleet, what.selection, by)
        found = await asyncio.to_thread(top_of, table, by, sort, most)
        return await service_page(
            request,
            sources,
            what,
            "top.html",
            top=found,
            groupings=[*GROUPINGS],
            more=min(most * 4, MOST_ROWS) if most < min(found.names, MOST_ROWS) else None,
        )

    return router


def table_asked(request: Request) -> tuple[Grouping, TopOrder, int]:
    """By what, in which order, and how many rows. Raises ParameterInvalid."""
    by = cast("Grouping", one_of(request, "by"))
    sort = cast("TopOrder", one_of(request, "sort"))
    return by, sort, whole_number(request, "n") if first(request, "n") else FEWEST_ROWS
