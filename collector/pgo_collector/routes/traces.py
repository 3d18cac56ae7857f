"""GET and HEAD /v1/traces: the traces that are kept, and one of them in each of its forms.

POST /v1/traces/{trace}/steps: what the client of a traced request reports.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.http.answers import json_answer
from pgo_collector.http.auth import context_of, require_key
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import download, parameters, problems
from pgo_collector.http.parameters import one_of
from pgo_collector.http.routing import Routes, check_parameters
from pgo_collector.http.traces import trace_query_of, visible_services
from pgo_collector.model.series import EVERY_SERVICE
from pgo_collector.queries import import_answers
from pgo_collector.queries.traces import KeptTraces, traces_of
from pgo_collector.traces.forms import FORMS
from pgo_collector.traces.tracing import Tracing

_HEADERS = {
    "Cache-Control": "private, no-store",
    "X-Content-Type-Options": "nosniff",
    # The page of the form `html` has a style, and nothing else that a browser would load or run.
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'",
}


def report_of_trace_routes(tracing: Tracing) -> Routes:
    """Return the route that takes reports. The signature of a report stands for a key."""
    routes = Routes(tags=["questions"])

    @routes.post(
        "/v1/traces/{trace}/steps",
        status_code=HTTPStatus.NO_CONTENT,
        summary="Report what the client of a trace did, with a signature in place of a key",
        response_description="Taken",
        checks=[check_parameters],
        responses=problems(400, 403, 404),
        openapi_extra=parameters(),
    )
    async def report(request: Request, trace: str) -> Response:
        tracing.report(trace, dict(request.scope["headers"]))
        return Response(status_code=HTTPStatus.NO_CONTENT)

    return routes


def traces_routes(kept: KeptTraces, keys: KeyFile) -> Routes:
    """Return the routes."""
    check_key = require_key(keys)

    async def check(request: Request) -> None:
        await check_key(request)
        await check_parameters(request)
        context = context_of(request)
        context.service = context.caller.scope.only_service or EVERY_SERVICE

    routes = Routes(check, tags=["questions"])

    @routes.get(
        "/v1/traces",
        [import_answers],
        summary="List the traced requests about the services of the key",
        response_description="The requests",
        response_model="Traces",
        responses=problems(400, 403, 503),
        openapi_extra=parameters("service", "from", "to", "last", "errors", "order", "limit"),
    )
    async def listed(request: Request) -> Response:
        return await json_answer(traces_of(await kept.summaries(trace_query_of(request))))

    @routes.get(
        "/v1/traces/{trace}",
        summary="Return a trace: its requests about the services of the key",
        responses=download("The trace", *(form.media_type for form in FORMS.values()))
        | problems(400, 403, 404, 422, 503),
        openapi_extra=parameters("form"),
    )
    async def one(request: Request, trace: str) -> Response:
        form = FORMS[one_of(request, "form")]
        trace = trace.lower()
        requests = await kept.requests(trace, visible_services(request))
        text = await asyncio.to_thread(form.write, trace, requests)
        return Response(text, media_type=form.media_type, headers=_HEADERS)

    return routes
