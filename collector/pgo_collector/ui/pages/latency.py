"""/ui/services/{service}/latency: how long the waits took, over time, and compared with a base."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.catalog.summaries import Summary
from pgo_collector.errors import NothingToMerge, NotOfThisProfile, ParameterInvalid
from pgo_collector.http.auth import check_scope
from pgo_collector.http.openapi import BASE
from pgo_collector.http.parameters import one_of
from pgo_collector.http.routing import Routes, first_values
from pgo_collector.http.selections import base_of
from pgo_collector.model.times import DAY_NANOS, format_time
from pgo_collector.queries.histograms import FleetHistogram, fleet_histogram, heat_map, histogram_of
from pgo_collector.queries.timelines import Step
from pgo_collector.ui.heat_drawing import ROW_HEIGHT, drawing_of, pairs_of
from pgo_collector.ui.pages.service import SelectedProfiles, no_profiles_page, selected_profiles, service_page
from pgo_collector.ui.pages.visitors import require_service
from pgo_collector.ui.sources import Sources

# A selection of less time is shown by the minute, or by the hour, unless the request says otherwise.
_MINUTES_NANOS = DAY_NANOS // 4
_HOURS_NANOS = 5 * DAY_NANOS


def latency_routes(sources: Sources) -> Routes:
    """Return the routes with the page."""
    routes = Routes(require_service(sources.sessions))

    @routes.get("/services/{service}/latency")
    async def latency(request: Request) -> Response:
        selected = await selected_profiles(request, sources, "latency", *BASE, "step")
        if selected.summary is None:
            return await no_profiles_page(request, sources, selected)
        step, status, problem = _step(request, selected.summary), HTTPStatus.OK, None
        base: FleetHistogram | None = None
        try:
            now = await fleet_histogram(sources.fleet, selected.selection)
        except NotOfThisProfile:
            return await service_page(
                request, sources, selected, "no_latencies.html", HTTPStatus.UNPROCESSABLE_ENTITY
            )
        if any(name in BASE for name in request.query_params):
            try:
                base_selection = base_of(request, selected.selection)
                check_scope(request, base_selection.service)
                base = await fleet_histogram(sources.fleet, base_selection)
            except (ParameterInvalid, NothingToMerge, NotOfThisProfile) as error:
                status, problem = error.status, f"The base: {error}"
        heat, _ = await heat_map(sources.fleet, selected.selection, step)
        histogram = histogram_of(now, base)
        drawing = await asyncio.to_thread(drawing_of, heat, histogram, selected.selection, selected.links)
        return await service_page(
            request,
            sources,
            selected,
            "latency.html",
            status,
            histogram=histogram,
            pairs=pairs_of(histogram, selected.links),
            drawing=drawing,
            row_height=ROW_HEIGHT,
            step=step,
            coarse=heat.coarse,
            problem=problem,
            base={name: selected.links.own.get(name, "") for name in BASE},
            given_base={name: text for name, text in selected.links.own.items() if name in BASE},
            suggested=_halves(selected),
        )

    return routes


def _step(request: Request, summary: Summary) -> Step:
    """Return the step that a request asks for, or one that fits its time. Raises ParameterInvalid."""
    if first_values(request).get("step"):
        return cast("Step", one_of(request, "step"))
    span = summary.end_nanos - summary.begin_nanos
    return "minute" if span < _MINUTES_NANOS else "hour" if span < _HOURS_NANOS else "day"


def _halves(selected: SelectedProfiles) -> str | None:
    """Return a link that compares the later half of the selection's time with the earlier one.

    It is None if there is no time between the first and the last profile.
    """
    summary = selected.summary
    if summary is None or summary.end_nanos - summary.begin_nanos < 2 * 10**9:
        return None
    begin, end = summary.begin_nanos, summary.end_nanos
    middle = (begin + end) // 2 // 10**9 * 10**9
    times = {"from": middle, "to": end + 1, "base_from": begin, "base_to": middle}
    written = {name: format_time(nanos) for name, nanos in times.items()}
    return selected.links.to("latency", **{"last": None, **written})
