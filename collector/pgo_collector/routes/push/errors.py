"""Pyroscope's paths, and its errors, as the protocol Connect and `/ingest` have them."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType

from pprof_merge import LimitExceeded, ProfileError
from starlette.responses import JSONResponse, Response

from pgo_collector.errors import KeyRefused, NotStored
from pgo_collector.http.problems import Dialect, Failure

PUSH = "/push.v1.PusherService/Push"
# Clients join an address that ends with a slash and a path.
INGEST = ("/ingest", "/pyroscope/ingest", "//ingest")
QUERIER = "/querier.v1.QuerierService/"
SETTINGS = "/settings.v1.SettingsService/"
RENDER, RENDER_DIFF = "/pyroscope/render", "/pyroscope/render-diff"
# Services that are called by Connect, and routes with its errors.
_CONNECT = ("/push.v1.", "/querier.v1.", "/settings.v1.", RENDER)

# Connect's code for each status, see connectrpc.com/docs/protocol#error-codes. Clients decide by the code
# whether to send again; what is refused for good is always an invalid argument.
_CODES: Mapping[int, str] = MappingProxyType(
    {
        401: "unauthenticated",
        403: "permission_denied",
        404: "unimplemented",
        405: "unimplemented",
        408: "deadline_exceeded",
        429: "resource_exhausted",
        500: "internal",
        501: "unimplemented",
        503: "unavailable",
    }
)
_INVALID = "invalid_argument"
# The statuses that a Connect client would read as something else than an invalid argument.
_AS_BAD_REQUEST = {HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY}


def connect_error(failure: Failure) -> Response:
    """Return an error of Connect: JSON with a `code` and a `message`."""
    failure = _as_clients_know(failure)
    if failure.status in _AS_BAD_REQUEST:
        failure = failure._replace(status=HTTPStatus.BAD_REQUEST)
    return _json_error(failure)


def _ingest_error(failure: Failure) -> Response:
    """Return an error of `/ingest`: JSON as Connect's, with Pyroscope's statuses."""
    failure = _as_clients_know(failure)
    if failure.status == HTTPStatus.BAD_REQUEST and all(map(_is_no_profile, failure.errors)):
        failure = failure._replace(status=HTTPStatus.UNPROCESSABLE_ENTITY)
    return _json_error(failure)


def _as_clients_know(failure: Failure) -> Failure:
    """Return a failure with 401 if there is no key, and 503 where a later attempt may succeed."""
    if isinstance(failure.error, KeyRefused):
        return failure._replace(status=HTTPStatus.UNAUTHORIZED)
    return failure.to_retry() if failure.has(NotStored) else failure


def _is_no_profile(error: Exception) -> bool:
    return isinstance(error, ProfileError) and not isinstance(error, LimitExceeded)


def _json_error(failure: Failure) -> Response:
    content = {"code": _CODES.get(failure.status, _INVALID), "message": failure.detail}
    return JSONResponse(content, failure.status.value, failure.headers)


CONNECT = Dialect(lambda path: path.startswith(_CONNECT), connect_error, submits=(PUSH,))
OF_INGEST = Dialect(lambda path: path in INGEST, _ingest_error, submits=INGEST)
