"""GET, HEAD and POST /v1/report: whether the merge is fit to build with; POST sends the program's symbols."""

from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.engine.tasks import ReportResult
from pgo_collector.http.answers import LEFT_OUT_HEADER, coarse_headers, left_out_header
from pgo_collector.http.auth import context_of, require_service_key
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import SELECTION, parameters, problems
from pgo_collector.http.routing import Routes
from pgo_collector.http.selections import selection_in, services_in, weights_of
from pgo_collector.model.selection import Coarse
from pgo_collector.releases.reports import Reports
from pgo_collector.settings import Settings
from pgo_collector.submits.body import BodyBound, BodyReader

_EXPECTED = "the output of `go tool nm`, or a list of functions"


def report_routes(reports: Reports, bodies: BodyReader, keys: KeyFile, settings: Settings) -> Routes:
    """Return the routes."""
    routes = Routes(require_service_key(keys, settings.default_service))
    bound = BodyBound(settings.max_inflated_bytes, "PGOF_MAX_INFLATED_BYTES")

    @routes.get(
        "/v1/report",
        summary="Report whether the merge is fit to build with",
        response_description="The report",
        responses=problems(400, 403, 404, 422, 500, 503),
        openapi_extra=parameters(*SELECTION, "weights", several=True),
    )
    async def report(request: Request) -> Response:
        selection = selection_in(request, services_in(request))
        weights = weights_of(request, selection.service)
        return _answer(*await reports.make(selection, weights=weights))

    @routes.post(
        "/v1/report",
        summary="Report whether the merge is fit to build a program with; send the program's symbols",
        response_description="The report",
        responses=problems(400, 403, 404, 408, 413, 422, 500, 503),
        openapi_extra=parameters(*SELECTION, "weights", body="text/plain", several=True),
    )
    async def report_with_symbols(request: Request) -> Response:
        selection = selection_in(request, services_in(request))
        weights = weights_of(request, selection.service)
        async with bodies.read(request, bound, _EXPECTED, to_file=True) as body:
            context_of(request).body_bytes = body.size
            return _answer(*await reports.make(selection, body.part, weights))

    return routes


def _answer(made: ReportResult, coarse: Coarse) -> Response:
    headers = {"Cache-Control": "private, no-store", **coarse_headers(coarse)}
    if made.left_out:
        headers[LEFT_OUT_HEADER] = left_out_header(made.left_out)
    return Response(made.report, media_type="application/json", headers=headers)
