"""/ui/services/{service}/series: the share of a function or package over time."""

from __future__ import annotations

from typing import cast

from pprof_merge.analysis import Grouping
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.catalog.summaries import Summary
from pgo_collector.http.openapi import LATENCIES
from pgo_collector.http.parameters import one_of, single_parameter
from pgo_collector.http.routing import Routes, first_values
from pgo_collector.http.selections import latencies_of, sample_type_of
from pgo_collector.model.selection import Focus
from pgo_collector.model.times import DAY_NANOS
from pgo_collector.queries.timelines import Step, Subject, time_series
from pgo_collector.ui.pages.service import no_profiles_page, selected_profiles, service_page
from pgo_collector.ui.pages.top import largest_names
from pgo_collector.ui.pages.visitors import require_service
from pgo_collector.ui.plots import plot_of
from pgo_collector.ui.sources import Sources

_SUBJECTS = ("function", "package")
# A selection of less time than this is shown by the hour, unless the request says otherwise.
_SHORT_NANOS = 5 * DAY_NANOS


def series_routes(sources: Sources) -> Routes:
    """Return the routes with the page."""
    routes = Routes(require_service(sources.sessions))

    @routes.get("/services/{service}/series")
    async def series(request: Request) -> Response:
        selected = await selected_profiles(
            request, sources, "series", *_SUBJECTS, "step", *LATENCIES, "sample_type"
        )
        if selected.summary is None:
            return await no_profiles_page(request, sources, selected)
        step = _step(request, selected.summary)
        focus = Focus(latencies_of(request), sample_type_of(request))
        suggested = {
            by: await largest_names(sources, selected.selection, cast("Grouping", by), focus)
            for by in _SUBJECTS
        }
        found = plot = None
        if any(map(first_values(request).get, _SUBJECTS)):
            by, name = single_parameter(request, _SUBJECTS)
            found, _ = await time_series(
                sources.fleet, selected.selection, cast("Subject", by), name, step, focus=focus
            )
            plot = plot_of(found.points)
        return await service_page(
            request,
            sources,
            selected,
            "series.html",
            series=found,
            plot=plot,
            step=step,
            suggested=suggested,
            focus=focus,
        )

    return routes


def _step(request: Request, summary: Summary) -> Step:
    """Return the step that a request asks for, or one that fits its time. Raises ParameterInvalid."""
    if first_values(request).get("step"):
        return cast("Step", one_of(request, "step"))
    return "hour" if summary.end_nanos - summary.begin_nanos < _SHORT_NANOS else "day"
