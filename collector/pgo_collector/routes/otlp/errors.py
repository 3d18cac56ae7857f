"""OTLP's path, and its errors, which are messages `google.rpc.Status`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.errors import KeyRefused, NotStored
from pgo_collector.http.problems import Dialect, Failure

EXPORT = "/v1development/profiles"
PROTOBUF = ("application/x-protobuf", "application/protobuf")
JSON = "application/json"

# The codes of google.rpc.Code for each status. What isn't here is an invalid argument, which no sender sends
# again.
_CODES: Mapping[int, int] = MappingProxyType(
    {401: 16, 403: 7, 404: 12, 405: 12, 408: 4, 415: 3, 429: 8, 500: 13, 503: 14}
)
_INVALID = 3


def media_type_of(request: Request) -> str:
    """Return the media type of a request's body, without parameters; empty if there is none."""
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _error(failure: Failure) -> Response:
    """Return an error of OTLP: a google.rpc.Status in the content type of the request."""
    if isinstance(failure.error, KeyRefused):
        failure = failure._replace(status=HTTPStatus.UNAUTHORIZED)
    elif failure.has(NotStored):  # senders don't send again after a 500
        failure = failure.to_retry()
    elif failure.status == HTTPStatus.UNPROCESSABLE_ENTITY:
        failure = failure._replace(status=HTTPStatus.BAD_REQUEST)
    code = _CODES.get(failure.status, _INVALID)
    if media_type_of(failure.request) == JSON:
        content, media_type = json.dumps({"code": code, "message": failure.detail}).encode(), JSON
    else:
        content, media_type = _status(code, failure.detail.encode(errors="replace")), PROTOBUF[0]
    return Response(content, failure.status.value, failure.headers, media_type)


def _status(code: int, message: bytes) -> bytes:
    """Return a google.rpc.Status as protobuf: the code is field 1, the message field 2."""
    length = len(message)  # of at most 501 characters, so that two bytes hold it
    return bytes((0x08, code, 0x12, length & 0x7F | 0x80, length >> 7)) + message


OTLP = Dialect(lambda path: path == EXPORT, _error, submits=(EXPORT,))
