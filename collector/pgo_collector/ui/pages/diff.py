"""/ui/services/{service}/diff: which calls take a different share of the selection than of a base."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from pprof_merge.analysis import GROUPINGS
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.errors import ParameterInvalid
from pgo_collector.http.auth import check_scope
from pgo_collector.http.openapi import BASE, FOCUS
from pgo_collector.http.routing import Routes
from pgo_collector.http.selections import base_of, focus_of
from pgo_collector.queries.answers import Diff
from pgo_collector.queries.diffs import diff_of
from pgo_collector.queries.flames import flame_of
from pgo_collector.queries.fleet_tables import fleet_table
from pgo_collector.ui.flame_drawing import drawing_of
from pgo_collector.ui.pages.flame import FlameParameters, look_of
from pgo_collector.ui.pages.service import (
    SelectedProfiles,
    name_of,
    no_profiles_page,
    selected_profiles,
    service_page,
)
from pgo_collector.ui.pages.top import table_parameters
from pgo_collector.ui.pages.visitors import require_service
from pgo_collector.ui.sources import Sources

_OWN = (*BASE, "by", "sort", "n", "root", "search", "recursion", "group", "layout", "colours", *FOCUS)


def diff_routes(sources: Sources) -> Routes:
    """Return the routes with the page."""
    routes = Routes(require_service(sources.sessions))

    async def page(
        request: Request, selected: SelectedProfiles, status: HTTPStatus = HTTPStatus.OK, **values: object
    ) -> Response:
        template_values: dict[str, object] = {
            "diff": None,
            "problem": None,
            "base": {name: selected.links.own.get(name, "") for name in BASE},
            "groupings": GROUPINGS,
            "focus": focus_of(request),
            **values,
        }
        return await service_page(request, sources, selected, "diff.html", status, **template_values)

    @routes.get("/services/{service}/diff")
    async def diff(request: Request) -> Response:
        selected = await selected_profiles(request, sources, "diff", *_OWN)
        (by, sort, most), look = table_parameters(request), look_of(request)
        shown = FlameParameters(request, selected.links)
        focus = shown.reading.focus
        if selected.summary is None:
            return await no_profiles_page(request, sources, selected)
        if not any(name in BASE for name in request.query_params):
            return await page(request, selected)
        try:
            base = base_of(request, selected.selection)
        except ParameterInvalid as error:
            return await page(request, selected, HTTPStatus.BAD_REQUEST, problem=str(error))
        check_scope(request, base.service)
        base_summary = await asyncio.to_thread(sources.summaries.summary, base)
        if base_summary is None:
            problem = "No stored profile matches the base: change its times or labels."
            return await page(request, selected, HTTPStatus.NOT_FOUND, problem=problem)

        async def made() -> Diff:
            now = await fleet_table(sources.fleet, selected.selection, by, focus)
            before = await fleet_table(sources.fleet, base, by, focus)
            return await asyncio.to_thread(diff_of, now, before, by, sort, most)

        question = "diff", by, sort, most, focus
        found = await sources.fleet.kept.answer(
            question,
            [selected.selection, base],
            made,
            lambda diff: not diff.now.left_out + diff.base.left_out,
        )
        flame = await flame_of(sources.fleet, selected.selection, shown.view, base, shown.reading)
        drawing = await asyncio.to_thread(drawing_of, flame, shown.view.search, look)
        return await page(
            request,
            selected,
            diff=found,
            base_name=name_of(sources, base.service),
            base_summary=base_summary,
            **shown.values(flame, drawing, look),
        )

    return routes
