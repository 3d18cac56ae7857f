"""The routes to which Pyroscope's SDKs and Grafana Alloy push: Push by Connect, and `/ingest`.

Success is exactly 200, with the content type of the request: some clients take any other answer for an error.
"""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.http.auth import DirectRoute, require_key
from pgo_collector.http.context import context_of
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import parameters
from pgo_collector.routes.push.errors import INGEST, PUSH
from pgo_collector.routes.push.messages import JSON, PROTOBUF, is_json
from pgo_collector.routes.push.naming import UNKNOWN_SERVICE, Sender
from pgo_collector.routes.pyroscope.ingest import ingest_options, unpack_ingest
from pgo_collector.routes.pyroscope.push import PushOptions, unpack_push
from pgo_collector.submits.submits import Submits

# The tenant of clients that name none.
_ANONYMOUS = "anonymous"


def pyroscope_routes(submits: Submits, keys: KeyFile, most_profiles: int) -> APIRouter:
    """Return the routes; one request may have `most_profiles` profiles."""
    router = APIRouter(route_class=DirectRoute, dependencies=[Depends(require_key(keys))])

    @router.post(
        PUSH,
        summary="Store profiles, as Pyroscope's SDKs and Grafana Alloy push them",
        response_class=Response,
        response_description="The profiles are stored durably, or already were",
        openapi_extra=parameters(body=PROTOBUF),
    )
    async def push(request: Request) -> Response:
        as_json = is_json(request)
        options = PushOptions(as_json, most_profiles, sender_of(request))
        await submits.push(request, partial(unpack_push, options))
        return Response(b"{}" if as_json else b"", media_type=JSON if as_json else PROTOBUF)

    first, *others = INGEST

    @router.post(
        first,
        summary="Store a profile, as Pyroscope's older SDKs send it",
        response_class=Response,
        response_description="The profile is stored durably, or already was",
        openapi_extra=parameters(body="application/octet-stream"),
    )
    async def ingest_profile(request: Request) -> Response:
        content_type = request.headers.get("Content-Type", "")
        options = ingest_options(request.query_params, content_type, sender_of(request))
        await submits.push(request, partial(unpack_ingest, options))
        return Response()

    for path in others:
        router.post(path, include_in_schema=False)(ingest_profile)
    return router


def sender_of(request: Request) -> Sender:
    """Return what a request's headers and key say of its profiles. Raises KeyRefused if there is no key."""
    tenant = request.headers.get("X-Scope-OrgID", "")
    service = context_of(request).caller.scope.only_service or UNKNOWN_SERVICE
    return Sender(service, "" if tenant == _ANONYMOUS else tenant)
