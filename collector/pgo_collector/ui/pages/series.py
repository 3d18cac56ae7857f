"""/ui/services/{service}/series: a function's or package's share over time."""

from __future__ import annotations

import asyncio
from typing import cast

from fastapi import APIRouter, Depends
from pprof_merge import Grouping
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.catalog.summaries import Summary
from pgo_collector.http.openapi import METHODS
from pgo_collector.http.parameters import name_in, one_of
from pgo_collector.http.selections import first
from pgo_collector.model.times import DAY_NANOS
from pgo_collector.queries.tables import fleet_table
from pgo_collector.queries.timelines import Step, Subject, time_series
from pgo_collector.queries.tops import top_of
from pgo_collector.ui.pages.service import nothing_page, service_page, shown
from pgo_collector.ui.pages.visitors import sees_service
from pgo_collector.ui.plots import plot_of
from pgo_collector.ui.sources import Sources

_SUBJECTS = ("function", "package")
_MOST_SUGGESTED = 20
# With less time than this the steps are hours, unless days are asked for.
_SHORT_NANOS = 5 * DAY_NANOS


def series_routes(sources: Sources) -> APIRouter:
    """The route."""
    router = APIRouter(dependencies=[Depends(sees_service(sources.sessions))])

    @router.api_route("/services/{service}/series", methods=METHODS)
    async def series(request: Request) -> Response:
        what = await shown(request, sources, "series", *_SUBJECTS, "step")
        if what.summary is None:
            return await nothing_page(request, sources, what)
        step = _step(request, what.summary)
        suggested = {}
        for by in _SUBJECTS:
            table = await fleet_table(sources.fleet, what.selection, cast("Grouping", by))
            top = await asyncio.to_thread(top_of, table, cast("Grouping", by), "cum", _MOST_SUGGESTED)
            suggested[by] = [row.name for row in top.rows]
        found = plot = None
        if any(first(request, name) for name in _SUBJECTS):
            by, name = name_in(request, _SUBJECTS)
            found, _ = await time_series(sources.fleet, what.selection, cast("Subject", by), name, step)
            plot = plot_of(found.points)
        return await service_page(
            request, sources, what, "series.html", series=found, plot=plot, step=step, suggested=suggested
        )

    return router


def _step(request: Request, summary: Summary) -> Step:
    """What is asked for, or what the time that is selected has some of. Raises ParameterInvalid."""
    if first(request, "step"):
        return cast("Step", one_of(request, "step"))
    return "hour" if summary.end_nanos - summary.begin_nanos < _SHORT_NANOS else "day"
