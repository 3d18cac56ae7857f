"""Connect: its messages, read within bounds and written as protobuf or JSON, and its errors.

Pyroscope's and Parca's services are called by it; see connectrpc.com/docs/protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from types import MappingProxyType
from typing import TypeVar

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from pprof_merge import Limits, ProfileError, inflate
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pgo_collector.errors import (
    BinaryThere,
    ContentTypeUnknown,
    EmptyBody,
    KeyRefused,
    NoSuchBinary,
    NotStored,
    ParameterInvalid,
    UploadExpected,
)
from pgo_collector.http.openapi import parameters
from pgo_collector.http.problems import Failure
from pgo_collector.http.routing import Endpoint, Routes
from pgo_collector.readers.json_text import read_json
from pgo_collector.submits.body import BodyBound, BodyReader

T = TypeVar("T", bound=Message)

PROTOBUF = "application/proto"
JSON = "application/json"
# The messages of a call that streams them, as gRPC frames them.
GRPC = "application/grpc+proto"
# Queries are small, so that they stay in memory and are quick to read; gzip may make them smaller still.
_LARGEST_BODY = (16 << 10) - 1
_BOUND = BodyBound(_LARGEST_BODY)
_LIMITS = Limits(compressed_bytes=_LARGEST_BODY, inflated_bytes=64 << 10)
# Values of a JSON text, which are converted one by one: so many in any, some more for each byte that the body
# had before it was inflated, and the most; a query has few.
_ANY_VALUES, _VALUES_OF_BYTE, _MOST_VALUES = 20_000, 3, 100_000
_MOST_IN_QUERY = 5000
# What json and json_format raise for what isn't the message.
NOT_JSON = (ValueError, TypeError, AttributeError, RecursionError, SystemError, json_format.Error)

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
# What clients that upload decide by, where the status isn't enough.
_CODES_OF_ERRORS: Mapping[type[Exception], str] = MappingProxyType(
    {
        NoSuchBinary: "not_found",
        BinaryThere: "already_exists",
        UploadExpected: "failed_precondition",
    }
)
# The statuses that a Connect client would read as something else than an invalid argument.
_AS_BAD_REQUEST = {HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY}


def media_type_of(request: Request) -> str:
    """Return the content type of a request, without parameters."""
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def is_json(request: Request) -> bool:
    """Return whether a request of Connect is JSON; the other form is protobuf. Raises ContentTypeUnknown."""
    media_type = media_type_of(request)
    if media_type not in {PROTOBUF, JSON}:
        raise ContentTypeUnknown(f"send the request as {PROTOBUF} or {JSON}")
    return media_type == JSON


def most_values(size: int) -> int:
    """Return how many values the JSON of a push may have whose body has this many bytes, gzip or not."""
    return min(_ANY_VALUES + _VALUES_OF_BYTE * size, _MOST_VALUES)


class Messages:
    """Reads the messages of requests."""

    def __init__(self, bodies: BodyReader) -> None:
        self._bodies = bodies

    async def read(self, request: Request, kind: type[T]) -> T:
        """Return the message of a request; an empty body is an empty message.

        Raises ContentTypeUnknown, ParameterInvalid, and what `BodyReader.read` raises.
        """
        as_json, content = is_json(request), b""
        with suppress(EmptyBody):
            async with self._bodies.read(request, _BOUND, "a query") as body:
                content = body.content if isinstance(body.content, bytes) else b""
        try:
            message = inflate(content, _LIMITS)
            if not as_json:
                return kind.FromString(message)
            return json_format.ParseDict(
                read_json(message or b"{}", _MOST_IN_QUERY), kind(), ignore_unknown_fields=True
            )
        except (DecodeError, ProfileError, *NOT_JSON) as error:
            reason = str(error).encode(errors="backslashreplace").decode()
            raise ParameterInvalid(f"the body isn't a {kind.DESCRIPTOR.full_name}: {reason}") from error

    def serve(
        self,
        routes: Routes,
        path: str,
        summary: str,
        kind: type[T],
        call: Callable[[Request, T], Awaitable[Message]],
    ) -> None:
        """Add the route of a method: `call` gets each request and its message, and returns the answer's."""

        async def endpoint(request: Request) -> Response:
            return await _answer(request, await call(request, await self.read(request, kind)))

        post_call(routes, path, summary, endpoint)


def post_call(routes: Routes, path: str, summary: str, endpoint: Endpoint) -> None:
    """Add the route of a method, which `endpoint` answers."""
    routes.post(
        path,
        summary=summary,
        response_class=Response,
        response_description="The answer, as protobuf or JSON like the request",
        openapi_extra=parameters(body=PROTOBUF),
    )(endpoint)


async def _answer(request: Request, message: Message) -> Response:
    """Return a message as the answer, in the form of the request."""
    return written_answer(request, await asyncio.to_thread(written, message, is_json(request)))


def written_answer(request: Request, content: bytes) -> Response:
    """Return a message, which was written in the form of the request, as the answer."""
    return Response(content, media_type=JSON if is_json(request) else PROTOBUF)


def written(message: Message, as_json: bool) -> bytes:
    """Return a message as JSON, whose numbers of 64 bits are strings, or as protobuf."""
    if not as_json:
        return message.SerializeToString()
    return json_format.MessageToJson(message, indent=None).encode()


def connect_error(failure: Failure) -> Response:
    """Return an error of Connect: JSON with a `code` and a `message`."""
    failure = as_clients_know(failure)
    if failure.status in _AS_BAD_REQUEST:
        failure = failure._replace(status=HTTPStatus.BAD_REQUEST)
    return json_error(failure)


def as_clients_know(failure: Failure) -> Failure:
    """Return a failure with 401 if there is no key, and 503 where a later attempt may succeed."""
    if isinstance(failure.error, KeyRefused):
        return failure._replace(status=HTTPStatus.UNAUTHORIZED)
    return failure.to_retry() if failure.has(NotStored) else failure


def json_error(failure: Failure) -> Response:
    """Return the JSON of an error of Connect, with the status that the failure has."""
    code = _CODES_OF_ERRORS.get(type(failure.error)) or _CODES.get(failure.status, _INVALID)
    content = {"code": code, "message": failure.detail}
    return JSONResponse(content, failure.status.value, failure.headers)
