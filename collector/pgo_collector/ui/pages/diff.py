"""/ui/services/{service}/diff: what takes another share of one selection than of another."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from urllib.parse import quote

from fastapi import APIRouter, Depends
from pprof_merge import GROUPINGS
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.catalog.summaries import Summary
from pgo_collector.errors import ParameterInvalid
from pgo_collector.http.auth import check_scope
from pgo_collector.http.openapi import BASE, METHODS
from pgo_collector.http.selections import base_of
from pgo_collector.model.selection import Selection
from pgo_collector.model.times import DAY_NANOS, format_time
from pgo_collector.queries.diffs import diff_of
from pgo_collector.queries.flames import flame_of
from pgo_collector.queries.tables import fleet_table
from pgo_collector.ui.amounts import cut
from pgo_collector.ui.flame_drawing import ROW_HEIGHT, drawing_of
from pgo_collector.ui.pages.flame import view_of
from pgo_collector.ui.pages.service import Shown, nothing_page, service_page, shown
from pgo_collector.ui.pages.top import table_asked
from pgo_collector.ui.pages.visitors import sees_service
from pgo_collector.ui.sources import Sources

_OWN = (*BASE, "by", "sort", "n", "root", "search")
_LONGEST_VERSION = 20


def diff_routes(sources: Sources) -> APIRouter:
    """The route."""
    router = APIRouter(dependencies=[Depends(sees_service(sources.sessions))])

    async def page(
        request: Request, what: Shown, status: HTTPStatus = HTTPStatus.OK, **context: object
    ) -> Response:
        suggestions = [] if what.summary is None else _suggestions(what, what.summary)
        every: dict[str, object] = {
            "diff": None,
            "problem": None,
            "base": {name: what.links.own.get(name, "") for name in BASE},
            "suggestions": suggestions,
            "groupings": [*GROUPINGS],
            **context,
        }
        return await service_page(request, sources, what, "diff.html", status, **every)

    @router.api_route("/services/{service}/diff", methods=METHODS)
    async def diff(request: Request) -> Response:
        what = await shown(request, sources, "diff", *_OWN)
        (by, sort, most), view = table_asked(request), view_of(request)
        if what.summary is None:
            return await nothing_page(request, sources, what)
        if not any(name in BASE for name in request.query_params):
            return await page(request, what)
        try:
            base = base_of(request, what.selection)
        except ParameterInvalid as error:
            return await page(request, what, HTTPStatus.BAD_REQUEST, problem=str(error))
        check_scope(request, base.service)
        base_summary = await asyncio.to_thread(sources.summaries.summary, base)
        if base_summary is None:
            problem = "No stored profile fits the base."
            return await page(request, what, HTTPStatus.NOT_FOUND, problem=problem)
        now = await fleet_table(sources.fleet, what.selection, by)
        before = await fleet_table(sources.fleet, base, by)
        found = await asyncio.to_thread(diff_of, now, before, by, sort, most)
        flame = await flame_of(sources.fleet, what.selection, view, base)
        drawing = await asyncio.to_thread(drawing_of, flame, view.search)
        return await page(
            request,
            what,
            diff=found,
            base_summary=base_summary,
            drawing=drawing,
            search=view.search,
            row_height=ROW_HEIGHT,
        )

    return router


def _suggestions(what: Shown, summary: Summary) -> list[tuple[str, str]]:
    """Comparisons that there are profiles for: what they are called, and their links."""
    found: list[tuple[str, str]] = []
    links, selection = what.links, what.selection
    if not selection.matchers and len(summary.versions.latest) > 1:
        newest, before = (version.text for version in summary.versions.latest[:2])
        found.append(
            (
                f"version {cut(newest, _LONGEST_VERSION)} and {cut(before, _LONGEST_VERSION)} before it",
                links.to("diff", labels=_label(newest), base_labels=_label(before)),
            )
        )
    if _is_of_all_time(selection):
        begin, end = summary.begin_nanos, summary.end_nanos
        if end - begin > DAY_NANOS:
            found.append(("the last day and all before it", _by_time(what, end - DAY_NANOS)))
        if end - begin > 10**9:
            found.append(("the later and the earlier half", _by_time(what, (begin + end) // 2)))
    return found


def _is_of_all_time(selection: Selection) -> bool:
    return selection.begin is None and selection.end is None


def _by_time(what: Shown, nanos: int) -> str:
    moment = format_time(nanos - nanos % 10**9)
    return what.links.to("diff", **{"from": moment, "base_to": moment})


def _label(version: str) -> str:
    return f"version={quote(version, safe='')}"
