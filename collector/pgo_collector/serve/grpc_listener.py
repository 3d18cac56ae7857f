"""The gRPC port: each call becomes a request to the application's route of the same meaning, and its answer.

So HTTP's keys, limits, access log, metrics and traces hold here too. The proxy does TLS. To add a service,
add a row to `_METHODS`. The protocol is gRPC's "gRPC over HTTP2", for calls with one message. Of a call with
a stream of messages, the route gets the stream, as gRPC frames it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote

import structlog
from starlette.types import ASGIApp, Message, Scope

from pgo_collector.connections.connection_pool import MOST_HEADERS
from pgo_collector.connections.http2 import Fields, Http2Connection, Http2Limits, Port, Stream, StreamLost
from pgo_collector.connections.turns import Turns
from pgo_collector.routes.otlp.api import EXPORT
from pgo_collector.routes.otlp.api import PROTOBUF as OTLP_PROTOBUF
from pgo_collector.routes.otlp.export_pb2 import Status
from pgo_collector.routes.parca.api import METHODS as PARCA_METHODS
from pgo_collector.routes.parca.api import STREAM_METHODS as PARCA_STREAMS
from pgo_collector.routes.push.connect import GRPC
from pgo_collector.routes.push.connect import PROTOBUF as CONNECT_PROTOBUF
from pgo_collector.serve.listener import address_of, bind
from pgo_collector.settings import Settings

# gRPC's codes. Senders send again what is UNAVAILABLE; Parca's also RESOURCE_EXHAUSTED.
_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED, _UNIMPLEMENTED, _UNAVAILABLE = 3, 8, 12, 14
# The code for each status, and for each code of Connect, if they are others than INVALID_ARGUMENT.
_CODES: Mapping[int, int] = MappingProxyType(
    {
        401: 16,
        403: 7,
        404: _UNIMPLEMENTED,
        408: 4,
        429: _RESOURCE_EXHAUSTED,
        500: 13,
        501: _UNIMPLEMENTED,
        503: _UNAVAILABLE,
    }
)
_CODES_OF_CONNECT: Mapping[str, int] = MappingProxyType(
    {
        "deadline_exceeded": 4,
        "not_found": 5,
        "already_exists": 6,
        "permission_denied": 7,
        "resource_exhausted": _RESOURCE_EXHAUSTED,
        "failed_precondition": 9,
        "unimplemented": _UNIMPLEMENTED,
        "internal": 13,
        "unavailable": _UNAVAILABLE,
        "unauthenticated": 16,
    }
)
_OK = 200
# The magic bytes of a message tell how it is compressed, so that the field is for those that can't be read.
_ENCODINGS = ("identity", "gzip", "zstd")
_MEDIA_TYPE = b"application/grpc"
_ANSWER: Fields = (
    (b":status", b"200"),
    (b"content-type", _MEDIA_TYPE),
    (b"grpc-accept-encoding", ",".join(_ENCODINGS).encode()),
)
# The largest metadata of a call: as by default in gRPC. Each connection may have as many as calls are served.
_METADATA_BYTES = 8 << 10
_CALLS = "PGOF_MAX_CONNECTIONS or PGOF_GRPC_CALLS"
# After this its client is told to open another connection.
_AGE_SECONDS = 3600.0
# What a message begins with: whether it is compressed, and its length.
_HEAD_BYTES = 5
# Headers of HTTP/1.1 that say how a body is sent: a call has no use for them.
_LEFT_OUT = frozenset(
    {
        b"connection", b"content-encoding", b"content-length", b"content-type", b"expect", b"host", b"te",
        b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
_log = structlog.get_logger()


class _Method(NamedTuple):
    """The route that a method becomes, its content type, and what reads an error: its code and message.

    The route of one that `streams` gets all messages of a call, the others only the first.
    """

    path: str
    content_type: str
    error: Callable[[int, bytes], tuple[int, str]]
    streams: bool = False


def _connect_error(_: int, body: bytes) -> tuple[int, str]:
    """Return the code and the message of an error of Connect."""
    error = json.loads(body)
    return _CODES_OF_CONNECT.get(error["code"], _INVALID_ARGUMENT), str(error["message"])


def _otlp_error(status: int, body: bytes) -> tuple[int, str]:
    """Return the code and the message of an error of OTLP over HTTP."""
    return _CODES.get(status, _INVALID_ARGUMENT), Status.FromString(body).message


_METHODS: Mapping[str, _Method] = MappingProxyType(
    {
        "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export": _Method(
            EXPORT, OTLP_PROTOBUF[0], _otlp_error
        ),
        **{path: _Method(path, CONNECT_PROTOBUF, _connect_error) for path in PARCA_METHODS},
        **{path: _Method(path, GRPC, _connect_error, streams=True) for path in PARCA_STREAMS},
    }
)


class GrpcListener:
    """The port; `start` begins to listen.

    A call without a key is refused before its message is read, and a message has the time that a body has.
    Nothing is inflated here: the workers do.
    """

    def __init__(self, app: ASGIApp, settings: Settings, turns: Turns) -> None:
        self._app = app
        self._address = settings.grpc_address
        self._most_calls = settings.grpc_calls
        # Also the calls whose client has gone: they run to their end, as requests with POST do.
        self._running: set[asyncio.Task[None]] = set()
        self._streaming: set[asyncio.Task[None]] = set()  # those of them whose clients stream messages
        self._port = Port(_limits(settings), turns, self._begin)
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. Raises AddressUnusable."""
        listener = bind(self._address, "PGOF_GRPC_ADDRESS")
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Http2Connection(self._port), sock=listener)
        _log.info("listening for gRPC", address=address_of(listener))

    async def stop(self, grace_seconds: float) -> None:
        """Take no more calls, and wait for those that are being served."""
        if self._server is not None:
            self._server.close()
        await self._port.close(grace_seconds)
        if self._running:
            await asyncio.wait(self._running)

    def _begin(self, stream: Stream) -> None:
        """Begin to serve a call, or refuse it by what its head says."""
        fields = dict(reversed(stream.fields))  # the first of each name
        if not fields.get(b"content-type", b"").startswith(_MEDIA_TYPE):
            stream.answer(((b":status", b"415"),))
            return
        metadata = [field for field in stream.fields if _is_metadata(field[0])]
        method = _METHODS.get(fields.get(b":path", b"").decode("latin-1"))
        encoding = fields.get(b"grpc-encoding", b"identity").decode("latin-1")
        if method is None:
            _refuse(stream, _UNIMPLEMENTED, "there is no such method")
        elif encoding not in _ENCODINGS:
            text = f"grpc-encoding: {encoding[:50]} isn't read: send gzip, zstd, or none"
            _refuse(stream, _UNIMPLEMENTED, text)
        elif len(self._running) >= self._most_calls:
            text = f"{self._most_calls:,} calls are being served, the limit ({_CALLS})"
            _refuse(stream, _UNAVAILABLE, text)
        elif method.streams and len(self._streaming) >= (most := -(-self._most_calls // 2)):
            text = f"{most:,} uploads are arriving, half of the limit of calls ({_CALLS})"
            _refuse(stream, _UNAVAILABLE, text)
        elif fault := _metadata_fault(metadata):
            _refuse(stream, _RESOURCE_EXHAUSTED, fault)
        else:
            task = asyncio.create_task(self._serve(stream, _Exchange(method, metadata, stream)))
            for tasks in (self._running, self._streaming) if method.streams else (self._running,):
                tasks.add(task)
                task.add_done_callback(tasks.discard)

    async def _serve(self, stream: Stream, exchange: _Exchange) -> None:
        """Answer a call as the application answers the request that it becomes."""
        await self._app(exchange.scope, exchange.receive, exchange.send)
        if exchange.status != _OK:
            _refuse(stream, *exchange.method.error(exchange.status, bytes(exchange.body)))
            return
        message = b"\0" + len(exchange.body).to_bytes(4) + exchange.body
        stream.answer(_ANSWER, message, ((b"grpc-status", b"0"),))


def _refuse(stream: Stream, code: int, text: str) -> None:
    """Answer a call with a code of gRPC, and say why."""
    message = quote(text, safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}")
    stream.answer((*_ANSWER, (b"grpc-status", b"%d" % code), (b"grpc-message", message.encode())))


def _is_metadata(name: bytes) -> bool:
    """Return whether a field of this name is the caller's, and not of the protocol."""
    return name not in _LEFT_OUT and not name.startswith((b"grpc-", b":"))


def _metadata_fault(metadata: Fields) -> str:
    """Return why the metadata of a call is refused; empty if it isn't."""
    size = sum(len(key) + len(value) for key, value in metadata)
    if size > _METADATA_BYTES:
        return f"the metadata has {size:,} bytes; the limit is {_METADATA_BYTES:,}"
    if len(metadata) > MOST_HEADERS:
        return f"the metadata has {len(metadata):,} keys; the limit is {MOST_HEADERS:,}"
    return ""


def _limits(settings: Settings) -> Http2Limits:
    """Return the bounds of connections, from the settings of HTTP.

    Until a connection has sent HTTP/2's preface and settings, it has the time of a request's head. A
    connection that is never idle, since its client reads no answer, ends by its age. Heads may have twice as
    much metadata as is taken, so that `_metadata_fault` can name the limit.
    """
    return Http2Limits(
        connections=settings.grpc_connections,
        streams=settings.grpc_calls,
        fields_bytes=2 * _METADATA_BYTES,
        head_seconds=settings.head_timeout,
        idle_seconds=settings.idle_timeout,
        age_seconds=_AGE_SECONDS,
        grace_seconds=settings.body_timeout + settings.answer_timeout,
    )


class _Exchange:
    """A call as an ASGI request, and what the application answers: `status` and `body`."""

    def __init__(self, method: _Method, metadata: Fields, stream: Stream) -> None:
        self.method = method
        self.status = 0
        self.body = bytearray()
        self._stream = stream
        # Bytes of the message that haven't been read; None before its head, and until a stream has ended.
        self._left: int | None = None
        self.scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "2",
            "method": "POST",
            "scheme": "http",
            "path": method.path,
            "raw_path": method.path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(b"content-type", method.content_type.encode()), *metadata],
            "client": None,
            "server": None,
            "state": {},
        }

    async def receive(self) -> Message:
        """Return the next part of the message as the body of the request; after it, wait for good."""
        if self._left == 0:
            await asyncio.Event().wait()
        try:
            part = await (self._read_stream() if self.method.streams else self._read())
        except StreamLost:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": self._left != 0}

    async def _read_stream(self) -> bytes:
        """Read more of the call's messages, as they are framed. Raises StreamLost."""
        part = await self._stream.read()
        if self._stream.is_read:
            self._left = 0
        return part

    async def _read(self) -> bytes:
        """Read more of the call's message. Raises StreamLost, also if the call ends within it."""
        part = await self._read_some()
        if self._left is None:
            while len(part) < _HEAD_BYTES:
                part += await self._read_some()
            self._left = int.from_bytes(part[1:_HEAD_BYTES])
            part = part[_HEAD_BYTES:]
        part = part[: self._left]
        self._left -= len(part)
        return part

    async def _read_some(self) -> bytes:
        part = await self._stream.read()
        if not part and self._stream.is_read:
            raise StreamLost
        return part

    async def send(self, message: Message) -> None:
        """Take a part of the answer."""
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")
