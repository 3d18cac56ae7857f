"""POST /v1/submit: a body becomes a stored profile."""

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.http.auth import bearer_of
from pgo_collector.http.body import write_body
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import parameters, problems
from pgo_collector.http.selections import series_of
from pgo_collector.settings import Settings
from pgo_collector.store.store import Store

_BODY = "a profile, gzip or bare protobuf"


def submit_routes(store: Store, keys: KeyFile, settings: Settings) -> APIRouter:
    """The route."""
    router = APIRouter()

    @router.post(
        "/v1/submit",
        dependencies=[Depends(bearer_of(keys, settings.default_service))],
        summary="Stores a profile",
        status_code=204,
        response_description="It is stored, durably; or it was already",
        responses=problems(400, 403, 408, 413, 500, 503),
        openapi_extra=parameters("service", "type", "labels", body="application/octet-stream"),
    )
    async def submit(request: Request) -> Response:
        series = series_of(request)
        async with store.part() as part:
            request.state.bytes = await write_body(
                request, part, settings.largest_body, settings.body_timeout, _BODY
            )
            facts, _ = await store.submit(part, series, settings.limits)
        request.state.profile = facts.digest
        return Response(status_code=204)

    return router
