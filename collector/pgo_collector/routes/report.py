"""GET and POST /v1/report: whether the merge is fit to build with; with a program's symbols as the body."""

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.engine.tasks import Reported
from pgo_collector.http.auth import bearer_of
from pgo_collector.http.body import write_body
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.left_out import HEADER, left_out_header
from pgo_collector.releases.series_report import SeriesReport

_BODY = "what `go tool nm` prints, or a list of functions"


def report_routes(
    series_report: SeriesReport, keys: KeyFile, largest_body: int, body_seconds: float
) -> APIRouter:
    """The routes, for the report on one series."""
    router = APIRouter(dependencies=[Depends(bearer_of(keys))])

    @router.api_route("/v1/report", methods=["GET", "HEAD"])
    async def report() -> Response:
        return _answer(await series_report.make())

    @router.post("/v1/report")
    async def report_with_symbols(request: Request) -> Response:
        async with series_report.store.part() as part:
            request.state.bytes = await write_body(request, part, largest_body, body_seconds, _BODY)
            return _answer(await series_report.make(part))

    return router


def _answer(made: Reported) -> Response:
    headers = {"Cache-Control": "private, no-store"}
    if made.left_out:
        headers[HEADER] = left_out_header(made.left_out)
    return Response(made.report, media_type="application/json", headers=headers)
