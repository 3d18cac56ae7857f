"""/ui/services/{service}/function: the callers, callees and lines of one function."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.engine.views import Around
from pgo_collector.errors import NoSuchFunction
from pgo_collector.http.openapi import FOCUS
from pgo_collector.http.parameters import single_parameter, whole_number
from pgo_collector.http.routing import Routes, first_values
from pgo_collector.http.selections import focus_of
from pgo_collector.model.selection import Focus
from pgo_collector.queries.answers import Function
from pgo_collector.queries.functions import AROUND, fleet_use, function_of
from pgo_collector.ui.flame_drawing import ROW_HEIGHT
from pgo_collector.ui.pages.service import SelectedProfiles, no_profiles_page, selected_profiles, service_page
from pgo_collector.ui.pages.top import MAX_ROWS, largest_names
from pgo_collector.ui.pages.visitors import require_service
from pgo_collector.ui.sandwich_drawing import sandwich_of
from pgo_collector.ui.sources import Sources

_DEFAULT_ROWS = 25


def function_routes(sources: Sources) -> Routes:
    """Return the routes with the page."""
    routes = Routes(require_service(sources.sessions))

    @routes.get("/services/{service}/function")
    async def function(request: Request) -> Response:
        selected = await selected_profiles(request, sources, "function", "function", "n", *FOCUS)
        focus = focus_of(request)
        most = whole_number(request, "n") if first_values(request).get("n") else _DEFAULT_ROWS
        if selected.summary is None:
            return await no_profiles_page(request, sources, selected)
        found = around = None
        status, similar = HTTPStatus.OK, None
        if first_values(request).get("function"):
            _, name = single_parameter(request, ("function",))
            try:
                found, around = await _kept_function(sources, selected, name, most, focus)
            except NoSuchFunction as error:
                status, similar = error.status, error.similar
        if found is None and not similar:
            similar = await largest_names(sources, selected.selection, "function", focus)
        sandwich = None
        if found is not None and around is not None:
            sandwich = await asyncio.to_thread(sandwich_of, around, found, selected.links)
        rows = max(found.n_callers, found.n_callees, found.n_lines) if found else 0
        return await service_page(
            request,
            sources,
            selected,
            "function.html",
            status,
            function=found,
            sandwich=sandwich,
            row_height=ROW_HEIGHT,
            widest=max(found.cum_share, 0.001) if found else 1,
            similar=similar,
            focus=focus,
            more=min(most * 4, MAX_ROWS) if most < min(rows, MAX_ROWS) else None,
        )

    return routes


async def _kept_function(
    sources: Sources, selected: SelectedProfiles, name: str, most: int, focus: Focus
) -> tuple[Function, Around | None]:
    """Return the use of a function and the calls around it, kept if they were asked for before.

    Raises NoSuchFunction.
    """
    selection = selected.selection
    version = "" if selected.summary is None else selected.summary.newest_version

    async def made() -> tuple[Function, Around | None]:
        use = await fleet_use(sources.fleet, selection, name, focus, AROUND)
        found = await asyncio.to_thread(function_of, use, most, sources.source_links, version)
        return found, use.around

    question = "function", name, most, version, focus
    return await sources.fleet.kept.answer(question, [selection], made, lambda kept: not kept[0].left_out)
