"""The routes to which Pyroscope's SDKs and Grafana Alloy push: Push by Connect, and `/ingest`.

Success is exactly 200, with the content type of the request: some clients take any other answer for an error.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus

from pprof_merge import LimitExceeded, ProfileError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from pgo_collector.http.auth import require_key
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import NO_KEY_NEEDED, parameters
from pgo_collector.http.problems import Dialect, Failure
from pgo_collector.http.routing import Routes
from pgo_collector.routes.push.connect import (
    JSON,
    PROTOBUF,
    as_clients_know,
    connect_error,
    is_json,
    json_error,
)
from pgo_collector.routes.push.naming import sender_of
from pgo_collector.routes.pyroscope.ingest import ingest_options, unpack_ingest
from pgo_collector.routes.pyroscope.push import PushOptions, unpack_push
from pgo_collector.store.readiness import Readiness
from pgo_collector.submits.submits import Submits

# The tenant of clients that name none.
_ANONYMOUS = "anonymous"


READY = "/ready"
PUSH = "/push.v1.PusherService/Push"
# Clients join an address that ends with a slash and a path.
INGEST = ("/ingest", "/pyroscope/ingest", "//ingest")


def _ingest_error(failure: Failure) -> Response:
    """Return an error of `/ingest`: JSON as Connect's, with Pyroscope's statuses."""
    failure = as_clients_know(failure)
    if failure.status == HTTPStatus.BAD_REQUEST and all(map(_is_no_profile, failure.errors)):
        failure = failure._replace(status=HTTPStatus.UNPROCESSABLE_ENTITY)
    return json_error(failure)


def _is_no_profile(error: Exception) -> bool:
    return isinstance(error, ProfileError) and not isinstance(error, LimitExceeded)


CONNECT = Dialect(
    ("/push.v1.", "/querier.v1.", "/settings.v1.", "/debuginfo.v1alpha1.", "/pyroscope/render"),
    connect_error,
    submits=(PUSH,),
)
OF_INGEST = Dialect((), _ingest_error, submits=INGEST, others=INGEST)


def ready_route(readiness: Readiness) -> Routes:
    """Return the route by which Pyroscope's tools ask whether the server is ready; it needs no key."""
    routes = Routes()

    @routes.get(
        READY,
        summary="Say whether requests are answered, as Pyroscope does",
        response_class=PlainTextResponse,
        response_description="They are",
        openapi_extra=NO_KEY_NEEDED,
    )
    async def ready(_: Request) -> Response:
        if faults := await readiness.faults():
            text = "".join(f"{part}: {reason}\n" for part, reason in faults.items())
            return PlainTextResponse(text, HTTPStatus.SERVICE_UNAVAILABLE)
        return PlainTextResponse("ready\n")

    return routes


def pyroscope_routes(submits: Submits, keys: KeyFile, most_profiles: int) -> Routes:
    """Return the routes; one request may have `most_profiles` profiles."""
    routes = Routes(require_key(keys))

    @routes.post(
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

    @routes.post(
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
        routes.post(path, include_in_schema=False)(ingest_profile)
    return routes
