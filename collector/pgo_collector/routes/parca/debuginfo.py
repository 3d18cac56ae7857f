"""Parca's DebuginfoService: its agent, and `parca-debuginfo`, upload programs and their debug information.

A client asks whether an upload is wanted, has it begun, streams the file, and marks it finished. What says
which upload it is, is the build id alone: nothing is kept between the calls that the next one needs, so that
each may come to another collector.
"""

from __future__ import annotations

import asyncio

from google.protobuf.message import DecodeError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message

from pgo_collector.errors import BinaryUnwanted, BodyTooLarge, BodyTooSlow, ContentTypeUnknown, PushInvalid
from pgo_collector.http.openapi import parameters
from pgo_collector.http.routing import Routes
from pgo_collector.routes.parca import parca_pb2 as messages
from pgo_collector.routes.push.connect import GRPC, PROTOBUF, Messages, media_type_of
from pgo_collector.routes.push.uploads import NO_BUILD_ID, WANTED, AgentUploads, service_of_key
from pgo_collector.settings import Settings

_SERVICE = "/parca.debuginfo.v1alpha1.DebuginfoService"
_UPLOAD = f"{_SERVICE}/Upload"
# The methods of a message each, and those that stream messages.
UNARY = tuple(
    f"{_SERVICE}/{name}" for name in ("ShouldInitiateUpload", "InitiateUpload", "MarkUploadFinished")
)
STREAMS = (_UPLOAD,)
_NO_SOURCES = "sources and source maps aren't taken, only programs and their debug information"
_OF_PROGRAMS = {messages.DEBUGINFO_TYPE_DEBUGINFO_UNSPECIFIED, messages.DEBUGINFO_TYPE_EXECUTABLE}
# Build ids of these types are hex of what is in a program itself.
_OF_BUILDS = {messages.BUILD_ID_TYPE_UNKNOWN_UNSPECIFIED, messages.BUILD_ID_TYPE_GNU}


def debuginfo_routes(routes: Routes, uploads: AgentUploads, read: Messages, settings: Settings) -> None:
    """Add the routes to those of Parca, which take submit keys."""
    calls = _Calls(uploads, settings.binary_bytes)
    should, initiating, marking = UNARY
    read.serve(
        routes,
        should,
        "Say whether an upload is wanted, as Parca's agent asks",
        messages.ShouldInitiateUploadRequest,
        calls.should_initiate,
    )
    read.serve(
        routes,
        initiating,
        "Say how to upload a program, as Parca's agent asks",
        messages.InitiateUploadRequest,
        calls.initiate,
    )
    read.serve(
        routes,
        marking,
        "Say whether an upload is stored, as Parca's agent asks",
        messages.MarkUploadFinishedRequest,
        calls.finished,
    )

    @routes.post(
        _UPLOAD,
        summary="Store a program or its debug information, as Parca's agent uploads it",
        response_class=Response,
        response_description="The program is stored durably, or already was",
        openapi_extra=parameters(body=GRPC),
    )
    async def upload(request: Request) -> Response:
        service = service_of_key(request)
        if media_type_of(request) not in {GRPC, "application/grpc"}:
            raise ContentTypeUnknown(f"send the messages of the call as gRPC frames them: {GRPC}", GRPC)
        stream = UploadStream(request)
        try:
            async with asyncio.timeout(settings.body_timeout):
                info = await stream.begin()
        except TimeoutError:
            raise BodyTooSlow(f"no upload began within {settings.body_timeout:g} seconds") from None
        file = Request(request.scope, stream.receive)
        facts = await uploads.take(file, service, info.build_id.lower())
        stored = messages.UploadResponse(build_id=info.build_id, size=facts.size)
        return Response(stored.SerializeToString(), media_type=PROTOBUF)


class _Calls:
    """The calls of one message."""

    def __init__(self, uploads: AgentUploads, most_bytes: int) -> None:
        self._uploads = uploads
        self._most_bytes = most_bytes

    async def should_initiate(
        self, request: Request, asked: messages.ShouldInitiateUploadRequest
    ) -> messages.ShouldInitiateUploadResponse:
        """Say whether an upload is wanted, and why."""
        service, build_id = service_of_key(request), asked.build_id.lower()
        unwanted = _fault(asked) or await self._uploads.reason(service, build_id, is_forced=asked.force)
        return messages.ShouldInitiateUploadResponse(
            should_initiate_upload=not unwanted, reason=unwanted or WANTED
        )

    async def initiate(
        self, request: Request, asked: messages.InitiateUploadRequest
    ) -> messages.InitiateUploadResponse:
        """Have a program uploaded by the call Upload; all others then wait for it.

        Raises what `AgentUploads.check` raises, and BodyTooLarge.
        """
        service, build_id = service_of_key(request), asked.build_id.lower()
        if fault := _fault(asked):
            raise BinaryUnwanted(fault)
        await self._uploads.check(service, build_id, is_forced=asked.force)
        if asked.size > self._most_bytes:
            raise BodyTooLarge(f"the file is larger than {self._most_bytes:,} bytes (PGOF_BINARY_BYTES)")
        self._uploads.expect(service, build_id)
        instructions = messages.UploadInstructions(
            build_id=asked.build_id,
            upload_id=build_id,
            upload_strategy=messages.UploadInstructions.UPLOAD_STRATEGY_GRPC,
            type=asked.type,
        )
        return messages.InitiateUploadResponse(upload_instructions=instructions)

    async def finished(
        self, request: Request, asked: messages.MarkUploadFinishedRequest
    ) -> messages.MarkUploadFinishedResponse:
        """Check that the program is stored. Raises NoSuchBinary."""
        await self._uploads.programs.stored(service_of_key(request), asked.build_id.lower())
        return messages.MarkUploadFinishedResponse()


def _fault(asked: messages.ShouldInitiateUploadRequest | messages.InitiateUploadRequest) -> str:
    """Return why no such file is ever wanted; "" if it may be."""
    if asked.type not in _OF_PROGRAMS:
        return _NO_SOURCES
    return "" if asked.build_id_type in _OF_BUILDS else NO_BUILD_ID


# What a message of a stream begins with: whether it is compressed, and its length. A part of the file follows
# as the only field of its message: a tag, and a length.
_HEAD_BYTES, _LONGEST_LENGTH = 5, 5
_PART_TAG, _MORE, _SEVEN_BITS = 0x12, 0x80, 0x7F
_LARGEST_INFO = 4 << 10
# Messages that may be small, and what all others have on average, at least: more of them only cost time.
_SPARE_MESSAGES, _BYTES_PER_MESSAGE = 1000, 1 << 10


class UploadStream:
    """The messages UploadRequest of a call: first the info, and then the file in parts, as it arrives.

    No message is held, however long it is. Methods raise PushInvalid if they are something else.
    """

    def __init__(self, request: Request) -> None:
        self._receive = request.receive
        self._unread = bytearray()
        self._left = 0  # bytes of the part that is being read
        self._parts = self._size = 0
        self._has_ended = False

    async def begin(self) -> messages.UploadInfo:
        """Return the info. Raises ClientDisconnect."""
        while (info := self._info()) is None:
            if self._has_ended:
                raise PushInvalid("the call ended before its first message, which has the info")
            if (await self._arrive())["type"] == "http.disconnect":
                raise ClientDisconnect
        return info

    async def receive(self) -> Message:
        """Return the next bytes of the file as a part of the body of a request."""
        part = self._file_bytes()
        if not part and not self._has_ended:
            event = await self._arrive()
            if event["type"] == "http.disconnect":
                return event
            part = self._file_bytes()
        if self._has_ended and (self._unread or self._left):
            raise PushInvalid("the call ended within a message")
        return {"type": "http.request", "body": part, "more_body": not self._has_ended}

    async def _arrive(self) -> Message:
        event = await self._receive()
        self._unread += event.get("body", b"")
        self._has_ended = not event.get("more_body", False)
        return event

    def _info(self) -> messages.UploadInfo | None:
        """Read the first message; None if it hasn't arrived in whole."""
        size = self._message_bytes()
        if size is not None and size > _LARGEST_INFO:
            raise PushInvalid(
                f"the first message of an upload has the info, in up to {_LARGEST_INFO:,} bytes"
            )
        if size is None or len(self._unread) < _HEAD_BYTES + size:
            return None
        try:
            first = messages.UploadRequest.FromString(bytes(self._unread[_HEAD_BYTES : _HEAD_BYTES + size]))
        except DecodeError as error:
            raise PushInvalid(f"the first message isn't an UploadRequest: {error}") from error
        if not first.HasField("info"):
            raise PushInvalid("the first message of an upload has no info, which says what the file is of")
        del self._unread[: _HEAD_BYTES + size]
        return first.info

    def _file_bytes(self) -> bytes:
        """Return the bytes of the file that have arrived."""
        found = bytearray()
        while self._unread and (self._left or self._begin_part()):
            part = self._unread[: self._left]
            del self._unread[: len(part)]
            self._left -= len(part)
            found += part
        self._size += len(found)
        return bytes(found)

    def _begin_part(self) -> bool:
        """Read what stands before a part of the file; return False if it hasn't arrived in whole."""
        size = self._message_bytes()
        longest = _HEAD_BYTES + min(size or 0, 1 + _LONGEST_LENGTH)
        if size is None or len(self._unread) < longest:
            return False
        self._parts += 1
        if self._parts > _SPARE_MESSAGES + self._size // _BYTES_PER_MESSAGE:
            raise PushInvalid(f"messages of an upload have {_BYTES_PER_MESSAGE:,} bytes and more: send fewer")
        field = self._unread[_HEAD_BYTES:longest]
        before = _before_part(field, size) if size else 0
        self._left = size - before
        del self._unread[: _HEAD_BYTES + before]
        return True

    def _message_bytes(self) -> int | None:
        """Return the size of the next message; None if it hasn't arrived."""
        if len(self._unread) < _HEAD_BYTES:
            return None
        if self._unread[0]:
            raise PushInvalid("the messages of an upload are compressed: send them as they are")
        return int.from_bytes(self._unread[1:_HEAD_BYTES])


def _before_part(field: bytes | bytearray, size: int) -> int:
    """Return how many bytes stand before a part of the file in its message of `size` bytes.

    Raises PushInvalid if the message has something else.
    """
    length = 0
    for place, byte in enumerate(field[1:]):
        length |= (byte & _SEVEN_BITS) << 7 * place
        if not byte & _MORE:
            before = place + 2
            if field[0] == _PART_TAG and before + length == size:
                return before
            break
    raise PushInvalid("a message of an upload has something else than a part of the file")
