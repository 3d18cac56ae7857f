"""GET and HEAD /v1/fleet, top, flame, function, series, diff, histogram, heatmap: where time is spent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from pprof_merge.analysis import FlameView, Grouping, TopOrder
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.catalog.summaries import Summaries, newest_version
from pgo_collector.errors import NotOfThisProfile
from pgo_collector.http.answers import check_names, json_answer
from pgo_collector.http.auth import check_scope, context_of, require_service_key
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import BASE, FOCUS, LATENCIES, SELECTION, parameters, problems
from pgo_collector.http.parameters import (
    one_of,
    reading_of,
    root_of,
    search_of,
    single_parameter,
    whole_number,
)
from pgo_collector.http.routing import Decorator, Routes
from pgo_collector.http.selections import (
    base_of,
    fleet_selection_of,
    focus_of,
    latencies_of,
    sample_type_of,
    selection_of,
)
from pgo_collector.model.selection import Focus
from pgo_collector.model.series import EVERY_SERVICE
from pgo_collector.model.source_links import SourceLinks
from pgo_collector.queries import answers, import_answers
from pgo_collector.queries.diffs import diff_of
from pgo_collector.queries.flames import flame_answer, flame_of
from pgo_collector.queries.fleet import Fleet
from pgo_collector.queries.fleet_tables import fleet_table
from pgo_collector.queries.functions import fleet_use, function_of, names_of
from pgo_collector.queries.histograms import fleet_histogram, heat_map, histogram_of
from pgo_collector.queries.overviews import Overviews
from pgo_collector.queries.timelines import Step, Subject, time_series
from pgo_collector.queries.tops import top_of
from pgo_collector.queries.unnamed import unnamed_of

_SUBJECTS = ("function", "package")


def overview_routes(overviews: Overviews, keys: KeyFile) -> Routes:
    """Return the route of the fleet's overview."""
    routes = Routes(require_service_key(keys, EVERY_SERVICE), tags=["questions"])

    @_answers(
        routes,
        "/v1/fleet",
        "FleetOverview",
        "Return two weeks of all services: totals, changes, and what takes most",
        ("service", "type", "labels", "n", "search"),
        (400, 403, 422, 503),
    )
    async def overview(request: Request) -> Response:
        selection, most = fleet_selection_of(request), whole_number(request, "n")
        answer = await overviews.make(selection, context_of(request).caller.scope, most, search_of(request))
        check_names((row.name for row in (*answer.functions, *answer.packages)), overviews.budget)
        return await json_answer(answer)

    return routes


def flame_routes(fleet: Fleet, keys: KeyFile, default_service: str) -> Routes:
    """Return the route of flame graphs."""
    routes = Routes(require_service_key(keys, default_service), tags=["questions"])

    @_answers(
        routes,
        "/v1/flame",
        "FlameGraphAnswer",
        "Return the flame graph of a service, compared with a base if one is given",
        (*SELECTION, *BASE, *FOCUS, "by", "recursion", "group", "root", "search", "limit"),
    )
    async def flame(request: Request) -> Response:
        selection, base = selection_of(request), None
        if any(name in BASE for name in request.query_params):
            base = base_of(request, selection)
            check_scope(request, base.service)
        reading = reading_of(request)
        most, search = whole_number(request, "limit"), search_of(request)
        view = FlameView(root=root_of(request), most=most, search=search)
        found = await flame_of(fleet, selection, view, base, reading)
        answer = await asyncio.to_thread(flame_answer, found, reading, search)
        _check_sample_type(reading.focus, answer)
        check_names((call.name for call in answer.calls), fleet.budget)
        return await json_answer(answer, found.left_out)

    return routes


def unnamed_routes(fleet: Fleet, keys: KeyFile, default_service: str) -> Routes:
    """Return the route of functions without names."""
    routes = Routes(require_service_key(keys, default_service), tags=["questions"])

    @_answers(
        routes,
        "/v1/unnamed",
        "Unnamed",
        "Return the programs of a service whose functions have no names, and whether they were uploaded",
        (*SELECTION, "sample_type"),
    )
    async def unnamed(request: Request) -> Response:
        focus = Focus(sample_type=sample_type_of(request))
        answer = await unnamed_of(fleet, selection_of(request), focus.sample_type)
        _check_sample_type(focus, answer)
        check_names((program.file for program in answer.programs), fleet.budget)
        return await json_answer(answer)

    return routes


def query_routes(
    fleet: Fleet, summaries: Summaries, links: SourceLinks, keys: KeyFile, default_service: str
) -> Routes:
    """Return the routes."""
    routes = Routes(require_service_key(keys, default_service), tags=["questions"])

    @_answers(
        routes,
        "/v1/top",
        "Top",
        "Rank functions, packages, files or lines by value, in one service or in all",
        (*SELECTION, *FOCUS, "by", "sort", "n"),
    )
    async def top(request: Request) -> Response:
        selection = fleet_selection_of(request)
        by, sort, most = _table_parameters(request)
        focus = focus_of(request)
        table = await fleet_table(fleet, selection, by, focus)
        answer = await asyncio.to_thread(top_of, table, by, sort, most)
        _check_sample_type(focus, answer)
        check_names((row.name for row in answer.rows), fleet.budget)
        return await json_answer(answer, table.left_out)

    @_answers(
        routes,
        "/v1/function",
        "Function",
        "Return the callers, callees and lines of a function, in one service or in all",
        (*SELECTION, *FOCUS, "function", "n"),
    )
    async def function(request: Request) -> Response:
        selection = fleet_selection_of(request)
        _, name = single_parameter(request, ("function",))
        most = whole_number(request, "n")
        focus = focus_of(request)
        found = await fleet_use(fleet, selection, name, focus)
        version = ""
        if links.any and selection.service != EVERY_SERVICE:
            version = await asyncio.to_thread(newest_version, summaries, selection)
        answer = await asyncio.to_thread(function_of, found, most, links, version)
        _check_sample_type(focus, answer)
        check_names(names_of(answer), fleet.budget)
        return await json_answer(answer, found.left_out)

    @_answers(
        routes,
        "/v1/series",
        "TimeSeries",
        "Return the share of a function or package over time",
        (*SELECTION, *LATENCIES, "sample_type", "function", "package", "step"),
    )
    async def series(request: Request) -> Response:
        selection = fleet_selection_of(request)
        by, name = single_parameter(request, _SUBJECTS)
        step, focus = one_of(request, "step"), Focus(latencies_of(request), sample_type_of(request))
        found, left_out = await time_series(
            fleet, selection, cast("Subject", by), name, cast("Step", step), focus=focus
        )
        _check_sample_type(focus, found)
        return await json_answer(found, left_out)

    @_answers(
        routes,
        "/v1/diff",
        "Diff",
        "Compare the shares of functions, packages, files or lines in two selections",
        (*SELECTION, *BASE, *FOCUS, "by", "sort", "n"),
    )
    async def diff(request: Request) -> Response:
        selection = fleet_selection_of(request)
        base = base_of(request, selection)
        check_scope(request, base.service)
        by, sort, most = _table_parameters(request)
        focus = focus_of(request)
        now = await fleet_table(fleet, selection, by, focus)
        before = await fleet_table(fleet, base, by, focus)
        answer = await asyncio.to_thread(diff_of, now, before, by, sort, most)
        _check_sample_type(focus, answer)
        check_names((row.name for row in answer.rows), fleet.budget)
        return await json_answer(answer, [*now.left_out, *before.left_out])

    @_answers(
        routes,
        "/v1/histogram",
        "Histogram",
        "Return the histogram of latencies, compared with a base if one is given",
        (*SELECTION, *BASE),
    )
    async def histogram(request: Request) -> Response:
        selection, base = fleet_selection_of(request), None
        if any(name in BASE for name in request.query_params):
            base_selection = base_of(request, selection)
            check_scope(request, base_selection.service)
            base = await fleet_histogram(fleet, base_selection)
        now = await fleet_histogram(fleet, selection)
        left_out = [*now.left_out, *(base.left_out if base else ())]
        return await json_answer(histogram_of(now, base), left_out)

    @_answers(
        routes,
        "/v1/heatmap",
        "HeatMap",
        "Return the histogram of latencies of each step of time",
        (*SELECTION, "step"),
    )
    async def heatmap(request: Request) -> Response:
        step = cast("Step", one_of(request, "step"))
        found, left_out = await heat_map(fleet, fleet_selection_of(request), step)
        return await json_answer(found, left_out)

    return routes


def _table_parameters(request: Request) -> tuple[Grouping, TopOrder, int]:
    """Return the grouping, the order and the number of rows. Raises ParameterInvalid."""
    by = cast("Grouping", one_of(request, "by"))
    sort = cast("TopOrder", one_of(request, "sort"))
    return by, sort, whole_number(request, "n")


def _check_sample_type(
    focus: Focus,
    answer: answers.Top
    | answers.FlameGraphAnswer
    | answers.Function
    | answers.TimeSeries
    | answers.Diff
    | answers.Unnamed,
) -> None:
    """Raise NotOfThisProfile if the answer isn't about the sample type that was asked for."""
    if focus.sample_type not in {"", answer.sample_type.type}:
        types = ", ".join(each.type[:50] for each in answer.sample_types[:20])
        raise NotOfThisProfile(
            f"the profiles have no sample type {focus.sample_type[:50]!r}; give one of {types}"
        )


def _answers(  # noqa: PLR0917 - as the table of routes has them
    routes: Routes,
    path: str,
    model: str,
    summary: str,
    taken: Sequence[str],
    statuses: Sequence[int] = (400, 403, 404, 422, 503),
) -> Decorator:
    """Return the decorator of a route that answers a question with a model; `taken` are its parameters."""
    return routes.get(
        path,
        [import_answers],
        summary=summary,
        response_model=model,
        responses=problems(*statuses),
        openapi_extra=parameters(*taken),
    )
