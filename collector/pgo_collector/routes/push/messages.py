"""Connect's messages: a request as protobuf or JSON, read within bounds, and the answer in the same form."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TypeVar

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from pprof_merge import Limits, ProfileError, inflate
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.errors import ContentTypeUnknown, EmptyBody, ParameterInvalid
from pgo_collector.routes.pyroscope.encoding import written
from pgo_collector.routes.pyroscope.push import NOT_JSON
from pgo_collector.submits.body import BodyBound, BodyReader

T = TypeVar("T", bound=Message)

PROTOBUF = "application/proto"
JSON = "application/json"
# Queries are small, so that they stay in memory and are quick to read; gzip may make them smaller still.
_LARGEST_BODY = (16 << 10) - 1
_BOUND = BodyBound(_LARGEST_BODY)
_LIMITS = Limits(compressed_bytes=_LARGEST_BODY, inflated_bytes=64 << 10)


def media_type_of(request: Request) -> str:
    """Return the content type of a request, without parameters."""
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def is_json(request: Request) -> bool:
    """Return whether a request of Connect is JSON; the other form is protobuf. Raises ContentTypeUnknown."""
    media_type = media_type_of(request)
    if media_type not in {PROTOBUF, JSON}:
        raise ContentTypeUnknown(f"send the request as {PROTOBUF} or {JSON}")
    return media_type == JSON


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
            return json_format.ParseDict(json.loads(message or b"{}"), kind(), ignore_unknown_fields=True)
        except (DecodeError, ProfileError, *NOT_JSON) as error:
            reason = str(error).encode(errors="backslashreplace").decode()
            raise ParameterInvalid(f"the body isn't a {kind.DESCRIPTOR.full_name}: {reason}") from error


async def answer(request: Request, message: Message) -> Response:
    """Return a message as the answer, in the form of the request."""
    return written_answer(request, await asyncio.to_thread(written, message, is_json(request)))


def written_answer(request: Request, content: bytes) -> Response:
    """Return a message, which was written in the form of the request, as the answer."""
    return Response(content, media_type=JSON if is_json(request) else PROTOBUF)
