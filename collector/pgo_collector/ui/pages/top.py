"""/ui/services/{service}/top: the functions, packages, files or lines with the largest values."""

from __future__ import annotations

import asyncio
from typing import cast

from pprof_merge.analysis import GROUPINGS, Grouping, TopOrder
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.http.openapi import FOCUS
from pgo_collector.http.parameters import one_of, whole_number
from pgo_collector.http.routing import Routes, first_values
from pgo_collector.http.selections import focus_of
from pgo_collector.model.selection import Focus, Selection
from pgo_collector.queries.answers import Top
from pgo_collector.queries.fleet_tables import fleet_table
from pgo_collector.queries.tops import top_of
from pgo_collector.ui.pages.service import no_profiles_page, selected_profiles, service_page
from pgo_collector.ui.pages.visitors import require_service
from pgo_collector.ui.sources import Sources

DEFAULT_ROWS = 50
MAX_ROWS = 1000
_MAX_SUGGESTED = 20


def top_routes(sources: Sources) -> Routes:
    """Return the routes with the page."""
    routes = Routes(require_service(sources.sessions))

    @routes.get("/services/{service}/top")
    async def top(request: Request) -> Response:
        selected = await selected_profiles(request, sources, "top", "by", "sort", "n", *FOCUS)
        (by, sort, most), focus = table_parameters(request), focus_of(request)
        if selected.summary is None:
            return await no_profiles_page(request, sources, selected)
        found = await kept_top(sources, selected.selection, by, sort, most, focus)
        return await service_page(
            request,
            sources,
            selected,
            "top.html",
            top=found,
            focus=focus,
            groupings=[*GROUPINGS],
            more=min(most * 4, MAX_ROWS) if most < min(found.names, MAX_ROWS) else None,
        )

    return routes


def table_parameters(request: Request) -> tuple[Grouping, TopOrder, int]:
    """Return the grouping, the order and the number of rows of a request. Raises ParameterInvalid."""
    by = cast("Grouping", one_of(request, "by"))
    sort = cast("TopOrder", one_of(request, "sort"))
    return by, sort, whole_number(request, "n") if first_values(request).get("n") else DEFAULT_ROWS


async def kept_top(  # noqa: PLR0917 - as `top_of` has them
    sources: Sources, selection: Selection, by: Grouping, sort: TopOrder, most: int, focus: Focus
) -> Top:
    """Return the largest rows of a part of a selection, kept if they were asked for before."""

    async def made() -> Top:
        table = await fleet_table(sources.fleet, selection, by, focus)
        return await asyncio.to_thread(top_of, table, by, sort, most)

    question = "top", by, sort, most, focus
    return await sources.fleet.kept.answer(question, [selection], made, lambda top: not top.left_out)


async def largest_names(sources: Sources, selection: Selection, by: Grouping, focus: Focus) -> list[str]:
    """Return the names with the largest cumulative values in a selection, for a visitor to choose from."""
    top = await kept_top(sources, selection, by, "cum", _MAX_SUGGESTED, focus)
    return [row.name for row in top.rows]
