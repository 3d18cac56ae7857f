"""Pyroscope's API at the edge: its paths, and its errors, as the protocol Connect and `/ingest` have them."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType

from pprof_merge import LimitExceeded, ProfileError
from starlette.responses import JSONResponse

from pgo_collector.errors import KeyRefused, NotStored, PushRefused

PUSH = "/push.v1.PusherService/Push"
# Clients join an address that ends with a slash and a path.
INGEST = ("/ingest", "/pyroscope/ingest", "//ingest")
QUERIER = "/querier.v1.QuerierService/"
SETTINGS = "/settings.v1.SettingsService/"
RENDER, RENDER_DIFF = "/pyroscope/render", "/pyroscope/render-diff"
# Services that are called by Connect, and routes with its errors; Parca's are called by gRPC, too.
_CONNECT = ("/push.v1.", "/querier.v1.", "/settings.v1.", "/parca.", RENDER)
_RETRY_AFTER = {"Retry-After": "5"}

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


class ConnectError(JSONResponse):
    """An error of Connect: JSON with a `code` and a `message`."""

    def __init__(
        self, error: Exception, status: HTTPStatus, detail: str, headers: Mapping[str, str] | None
    ) -> None:
        """Make the answer to an error with the status, detail and headers that it has on other paths."""
        status, headers = _as_clients_know(error, status, headers)
        if status in _AS_BAD_REQUEST:
            status = HTTPStatus.BAD_REQUEST
        super().__init__(_content(status, detail), status.value, headers)


class IngestError(JSONResponse):
    """An error of `/ingest`: JSON as Connect's, with Pyroscope's statuses."""

    def __init__(
        self, error: Exception, status: HTTPStatus, detail: str, headers: Mapping[str, str] | None
    ) -> None:
        """Make the answer to an error with the status, detail and headers that it has on other paths."""
        status, headers = _as_clients_know(error, status, headers)
        errors = error.errors if isinstance(error, PushRefused) else [error]
        if status == HTTPStatus.BAD_REQUEST and all(map(_is_no_profile, errors)):
            status = HTTPStatus.UNPROCESSABLE_ENTITY
        super().__init__(_content(status, detail), status.value, headers)


def is_connect(path: str) -> bool:
    """Return whether a path belongs to a service that is called by Connect, or has its errors."""
    return path.startswith(_CONNECT)


def is_ingest(path: str) -> bool:
    """Return whether a path is one to which Pyroscope's older clients send profiles."""
    return path in INGEST


def _as_clients_know(
    error: Exception, status: HTTPStatus, headers: Mapping[str, str] | None
) -> tuple[HTTPStatus, Mapping[str, str] | None]:
    """Return the status and the headers: 401 without a key, and 503 where a later attempt may succeed."""
    errors = error.errors if isinstance(error, PushRefused) else [error]
    if isinstance(error, KeyRefused):
        return HTTPStatus.UNAUTHORIZED, headers
    if any(isinstance(each, NotStored) for each in errors):
        return HTTPStatus.SERVICE_UNAVAILABLE, {**_RETRY_AFTER, **(headers or {})}
    return status, headers


def _is_no_profile(error: Exception) -> bool:
    return isinstance(error, ProfileError) and not isinstance(error, LimitExceeded)


def _content(status: HTTPStatus, detail: str) -> dict[str, str]:
    return {"code": _CODES.get(status, _INVALID), "message": detail}
