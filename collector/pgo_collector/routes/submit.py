"""POST /v1/submit: a body becomes a stored profile."""

from fastapi import APIRouter, Depends
from pprof_merge import Limits
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.http.auth import bearer_of
from pgo_collector.http.body import write_body
from pgo_collector.http.keys import KeyFile
from pgo_collector.store.blobs import Series
from pgo_collector.store.store import Store

_BODY = "a profile, gzip or bare protobuf"


def submit_routes(
    store: Store, series: Series, keys: KeyFile, limits: Limits, body_seconds: float
) -> APIRouter:
    """The route, for profiles of one series."""
    router = APIRouter()
    largest_body = max(limits.compressed_bytes, limits.inflated_bytes)

    @router.post("/v1/submit", dependencies=[Depends(bearer_of(keys))])
    async def submit(request: Request) -> Response:
        async with store.part() as part:
            request.state.bytes = await write_body(request, part, largest_body, body_seconds, _BODY)
            facts = await store.submit(part, series, limits)
        request.state.profile = facts.digest
        return Response(status_code=204)

    return router
