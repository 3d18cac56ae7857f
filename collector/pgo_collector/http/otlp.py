"""OTLP at the edge: its path, and its errors, which are messages `google.rpc.Status`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.errors import KeyRefused, NotStored, PushRefused

EXPORT = "/v1development/profiles"
PROTOBUF = ("application/x-protobuf", "application/protobuf")
JSON = "application/json"
_RETRY_AFTER = {"Retry-After": "5"}

# The codes of google.rpc.Code for each status. What isn't here is an invalid argument, which no sender sends
# again.
_CODES: Mapping[int, int] = MappingProxyType(
    {401: 16, 403: 7, 404: 12, 405: 12, 408: 4, 415: 3, 429: 8, 500: 13, 503: 14}
)
_INVALID = 3


def is_otlp(path: str) -> bool:
    """Return whether a path is one to which OTLP sends profiles."""
    return path == EXPORT


class ExportError(Response):
    """An error of OTLP: a google.rpc.Status in the content type of the request."""

    def __init__(
        self,
        request: Request,
        error: Exception,
        status: HTTPStatus,
        detail: str,
        headers: Mapping[str, str] | None,
    ) -> None:
        """Make the answer to an error with the status, detail and headers that it has on other paths."""
        errors = error.errors if isinstance(error, PushRefused) else [error]
        if isinstance(error, KeyRefused):
            status = HTTPStatus.UNAUTHORIZED
        elif any(isinstance(each, NotStored) for each in errors):  # senders don't send again after a 500
            status, headers = HTTPStatus.SERVICE_UNAVAILABLE, {**_RETRY_AFTER, **(headers or {})}
        elif status == HTTPStatus.UNPROCESSABLE_ENTITY:
            status = HTTPStatus.BAD_REQUEST
        code = _CODES.get(status, _INVALID)
        if media_type_of(request) == JSON:
            content, media_type = json.dumps({"code": code, "message": detail}).encode(), JSON
        else:
            content, media_type = _status(code, detail.encode(errors="replace")), PROTOBUF[0]
        super().__init__(content, status.value, headers, media_type)


def media_type_of(request: Request) -> str:
    """Return the media type of a request's body, without parameters; empty if there is none."""
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _status(code: int, message: bytes) -> bytes:
    """Return a google.rpc.Status as protobuf: the code is field 1, the message field 2."""
    length = len(message)  # of at most 501 characters, so that two bytes hold it
    return bytes((0x08, code, 0x12, length & 0x7F | 0x80, length >> 7)) + message
