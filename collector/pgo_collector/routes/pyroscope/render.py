"""GET /pyroscope/render and render-diff: flame graphs as JSON of the format flamebearer, for Grafana's app
Profiles Drilldown and for scripts, and calls for Graphviz.
"""

from __future__ import annotations

import re
import time
from functools import partial

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from pgo_collector.errors import ParameterInvalid
from pgo_collector.http.auth import context_of, require_key
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.routing import Routes
from pgo_collector.model.series import Scope
from pgo_collector.queries.grafana.profiles import Query
from pgo_collector.queries.grafana.reading import Grouping, Reading, Steps
from pgo_collector.routes.push.connect import JSON
from pgo_collector.routes.pyroscope.flamebearer import Timeline, flamebearer_json
from pgo_collector.routes.pyroscope.graphs import USUAL_FUNCTIONS, dot_of

RENDER, RENDER_DIFF = "/pyroscope/render", "/pyroscope/render-diff"
_AGO = re.compile(r"now(?:-(\d{1,6})(s|m|h|d|w|M|y))?")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "M": 30 * 86400, "y": 365 * 86400}
_LONGEST_NUMBER = 9
_LONGEST_TIME = 19
# The steps of a timeline, in seconds, and how many there are at most, as Pyroscope has them.
_LEAST_STEP, _MOST_STEPS = 15, 1500


def render_routes(reading: Reading, keys: KeyFile) -> Routes:
    """Return the routes."""
    routes = Routes(require_key(keys))

    @routes.get(
        RENDER,
        summary="Return a flame graph as JSON, or its calls for Graphviz",
        response_class=Response,
        response_description="The flame graph, in the format flamebearer",
        openapi_extra=_parameters("query", "from", "until", "max-nodes", "format"),
    )
    async def render(request: Request) -> Response:
        query = _query_of(request, "query", "from", "until")
        if _text(request, "format") != "dot":
            return await _rendered(reading, request, [query])
        asked = _nodes_of(request)
        reading.nodes(asked)
        draw = partial(dot_of, query.type, asked or USUAL_FUNCTIONS)
        scope = context_of(request).caller.scope
        return PlainTextResponse(await reading.flame_graph(scope, [query], reading.nodes(0), draw))

    sides = [(f"{side}Query", f"{side}From", f"{side}Until") for side in ("left", "right")]

    @routes.get(
        RENDER_DIFF,
        summary="Return a flame graph that compares two selections as JSON",
        response_class=Response,
        response_description="The flame graph, in the format flamebearer, with two sides",
        openapi_extra=_parameters(*(name for names in sides for name in names), "max-nodes"),
    )
    async def render_diff(request: Request) -> Response:
        left, right = (_query_of(request, *names) for names in sides)
        if left.type != right.type:
            raise ParameterInvalid("rightQuery: give the profile type of leftQuery")
        return await _rendered(reading, request, [left, right])

    return routes


async def _rendered(reading: Reading, request: Request, sides: list[Query]) -> Response:
    scope, nodes = context_of(request).caller.scope, reading.nodes(_nodes_of(request))
    timeline = await _timeline(reading, scope, sides[0]) if len(sides) == 1 else None
    write = partial(flamebearer_json, sides[0].type, timeline)
    return Response(await reading.flame_graph(scope, sides, nodes, write), media_type=JSON)


async def _timeline(reading: Reading, scope: Scope, query: Query) -> Timeline:
    """Return the sums of a query's profiles over time; without steps if the query has no times."""
    if query.span.begin is None or query.span.end is None:
        return Timeline(0, _LEAST_STEP, [])
    begin, end = query.span.begin // 10**6, (query.span.end - 1) // 10**6
    step = max(_LEAST_STEP, -(-(end - begin) // (1000 * _MOST_STEPS)))
    samples = [0] * (-(-(end - begin) // (1000 * step)) + 1)
    steps = Steps(begin, end, 1000 * step)
    for _, points in await reading.series(scope, query, Grouping((), steps, is_dense=True)):
        for point in points:
            samples[-(-(point.time - begin) // (1000 * step))] += int(point.value)
    return Timeline(begin // 1000, step, samples)


def _query_of(request: Request, query: str, begin: str, until: str) -> Query:
    """Return the query of these parameters: a profile type with a selector after it, and two times."""
    text = _text(request, query).strip()
    if not text:
        raise ParameterInvalid(f"{query}: give a profile type and a selector, as in {_EXAMPLE}")
    profile_type, brace, rest = text.partition("{")
    start, end = _time_of(request, begin), _time_of(request, until)
    if start is None and end is None:
        start = end = 0
    elif end is None:
        end = time.time_ns() // 10**6
    return Query.of(profile_type.strip(), brace + rest, start or 0, end)


_EXAMPLE = 'process_cpu:cpu:nanoseconds:cpu:nanoseconds{service_name="checkout"}'


def _time_of(request: Request, name: str) -> int | None:
    """Return a time in ms since 1970; None if there is none. Raises ParameterInvalid."""
    text = _text(request, name)
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) <= _LONGEST_TIME:
        return _milliseconds(int(text))
    match = _AGO.fullmatch(text) if text.isascii() else None
    if match is None:
        raise ParameterInvalid(f"{name}={text[:50]}: give a time in s or ms since 1970, or as in now-1h")
    ago = int(match[1] or 0) * _SECONDS.get(match[2], 0)
    return time.time_ns() // 10**6 - ago * 1000


def _milliseconds(number: int) -> int:
    """Return a time since 1970 in s, ms, µs or ns, which its size tells, in ms: s until the year 5138."""
    for each, least in ((10**6, 10**17), (10**3, 10**14), (1, 10**11)):
        if number >= least:
            return number // each
    return number * 1000


def _nodes_of(request: Request) -> int:
    """Return how many nodes are asked for; 0 if that isn't said. Raises ParameterInvalid."""
    text = _text(request, "maxNodes") or _text(request, "max-nodes")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER):
        raise ParameterInvalid(f"max-nodes={text[:50]}: give a whole number")
    return int(text)


def _text(request: Request, name: str) -> str:
    return request.query_params.get(name, "")


def _parameters(*names: str) -> dict[str, object]:
    return {"parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]}
