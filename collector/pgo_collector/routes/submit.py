"""POST /v1/submit: store a profile."""

from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.http.answers import clock_headers
from pgo_collector.http.auth import require_service_key
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import parameters, problems
from pgo_collector.http.routing import Routes
from pgo_collector.http.selections import series_of
from pgo_collector.submits.submits import Submits

SUBMIT = "/v1/submit"


def submit_routes(submits: Submits, keys: KeyFile, default_service: str) -> Routes:
    """Return the route."""
    routes = Routes()

    @routes.post(
        SUBMIT,
        checks=[require_service_key(keys, default_service)],
        summary="Store a profile",
        status_code=204,
        response_description="The profile is stored durably, or already was",
        responses=problems(400, 403, 408, 413, 422, 429, 500, 503),
        openapi_extra=parameters("service", "type", "labels", body="application/octet-stream"),
    )
    async def submit(request: Request) -> Response:
        off = (await submits.submit(request, series_of(request))).seconds_off
        return Response(status_code=204, headers=clock_headers(off) if off else None)

    return routes
