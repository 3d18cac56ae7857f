"""The gRPC port: each call becomes a request to the application's route of the same meaning, and its answer.

So HTTP's keys, limits, access log, metrics and traces hold here too. The proxy does TLS. To add a service,
add a row to `_METHODS`. This module needs the extra `grpc`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import grpc
import structlog
from starlette.types import ASGIApp, Message, Scope

from pgo_collector.errors import AddressUnusable
from pgo_collector.routes.otlp.api import EXPORT
from pgo_collector.routes.otlp.api import PROTOBUF as OTLP_PROTOBUF
from pgo_collector.routes.otlp.export_pb2 import Status
from pgo_collector.routes.parca.api import METHODS as PARCA_METHODS
from pgo_collector.routes.push.connect import PROTOBUF as CONNECT_PROTOBUF
from pgo_collector.settings import Settings, split_address

# The gRPC code for each status. Senders send again what is UNAVAILABLE; Parca's also RESOURCE_EXHAUSTED.
_CODES: Mapping[int, grpc.StatusCode] = MappingProxyType(
    {
        401: grpc.StatusCode.UNAUTHENTICATED,
        403: grpc.StatusCode.PERMISSION_DENIED,
        404: grpc.StatusCode.UNIMPLEMENTED,
        408: grpc.StatusCode.DEADLINE_EXCEEDED,
        429: grpc.StatusCode.RESOURCE_EXHAUSTED,
        500: grpc.StatusCode.INTERNAL,
        501: grpc.StatusCode.UNIMPLEMENTED,
        503: grpc.StatusCode.UNAVAILABLE,
    }
)
_OK = 200
# What is read of a connection before it is parsed; otherwise megabytes, of each that sends quickly.
_READ_BYTES = 64 << 10
# The largest metadata of a call: as by default in gRPC. Each connection may have as many as calls are served.
_METADATA_BYTES = 8 << 10
_MOST_BYTES = (1 << 31) - 1  # gRPC's core takes no larger number
# Headers of HTTP/1.1 that say how a body is sent: a call has no use for them.
_LEFT_OUT = frozenset(
    {
        b"connection", b"content-encoding", b"content-length", b"content-type", b"expect", b"host", b"te",
        b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
_log = structlog.get_logger()


class _Method(NamedTuple):
    """The route that a method becomes, its content type, and what reads the message of an error's body."""

    path: str
    content_type: str
    error_message: Callable[[bytes], str]


def _connect_message(body: bytes) -> str:
    """Return the message of an error of Connect."""
    return str(json.loads(body)["message"])


_METHODS: Mapping[str, _Method] = MappingProxyType(
    {
        "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export": _Method(
            EXPORT, OTLP_PROTOBUF[0], lambda body: Status.FromString(body).message
        ),
        **{path: _Method(path, CONNECT_PROTOBUF, _connect_message) for path in PARCA_METHODS},
    }
)


class GrpcListener:
    """A server of gRPC's asyncio API, whose handlers take and give raw bytes.

    A client's unary call is read as a stream of one message: so a call without a key is refused before its
    message is read, and a message has the time that a body has. gRPC doesn't inflate messages, which it would
    do without a bound; the workers do.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._address = settings.grpc_address
        self._most_calls = settings.grpc_calls
        self._most_bytes, self._most_headers = _most_bytes_of_metadata(settings), settings.max_headers
        # Also the calls whose client has gone: they run to their end, as requests with POST do.
        self._running: set[asyncio.Task[None]] = set()
        self._options = _options(settings)
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listen. Raises AddressUnusable."""
        host, port = split_address(self._address)
        host = f"[{host}]" if ":" in host else host or "[::]"
        server = grpc.aio.server(options=self._options)
        server.add_generic_rpc_handlers((_Handlers(self._call),))
        try:
            bound = server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise AddressUnusable(f"address {self._address} (PGOF_GRPC_ADDRESS): it can't be used") from error
        await server.start()
        self._server = server
        _log.info("listening for gRPC", address=f"{host}:{bound}")

    async def stop(self, grace_seconds: float) -> None:
        """Take no more calls, and wait for those that are being served."""
        if self._server is not None:
            await self._server.stop(grace_seconds)
        if self._running:
            await asyncio.wait(self._running)

    async def _call(
        self, method: _Method, messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]
    ) -> bytes:
        """Answer a call as the application answers the request that it becomes."""
        if len(self._running) >= self._most_calls:
            text = f"{self._most_calls:,} calls are being served, the limit (PGOF_GRPC_CALLS)"
            await context.abort(grpc.StatusCode.UNAVAILABLE, text)
        if fault := _metadata_fault(context, self._most_bytes, self._most_headers):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, fault)
        exchange = _Exchange(method, messages, context)
        task = asyncio.create_task(exchange.run(self._app))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.shield(task)
        if exchange.status != _OK:
            code = _CODES.get(exchange.status, grpc.StatusCode.INVALID_ARGUMENT)
            await context.abort(code, method.error_message(exchange.body))
        return exchange.body


def _metadata_fault(context: grpc.aio.ServicerContext[Any, Any], most_bytes: int, most_headers: int) -> str:
    """Return why the metadata of a call is refused; empty if it isn't."""
    metadata = context.invocation_metadata() or ()
    size = sum(len(key) + len(value) for key, value in metadata)
    if size > most_bytes:
        return (
            f"the metadata has {size:,} bytes; the limit is {most_bytes:,} (PGOF_MAX_HEADER_BYTES, or 8 KiB)"
        )
    if len(metadata) > most_headers:
        return f"the metadata has {len(metadata):,} keys; the limit is {most_headers:,} (PGOF_MAX_HEADERS)"
    return ""


def _most_bytes_of_metadata(settings: Settings) -> int:
    return min(settings.max_header_bytes, _METADATA_BYTES)


def _options(settings: Settings) -> list[tuple[str, int]]:
    """Return the options of gRPC's core that bound what clients can make large, from the settings of HTTP.

    Until a connection has sent HTTP/2's preface and settings, it has the time of a request's head. A
    connection that is never idle, since its client reads no answer, ends by its age.
    """
    head, idle, age, grace = (
        int(seconds * 1000)
        for seconds in (
            settings.head_timeout,
            settings.idle_timeout,
            settings.grpc_connection_seconds,
            settings.body_timeout + settings.answer_timeout,
        )
    )
    # Twice as much as may come of metadata and of a message, so that `_metadata_fault` and the route can name
    # the setting.
    metadata = 2 * _most_bytes_of_metadata(settings)
    return [
        ("grpc.max_allowed_incoming_connections", settings.grpc_connections),
        ("grpc.server_handshake_timeout_ms", head),
        ("grpc.http2.settings_timeout", head),
        ("grpc.max_connection_idle_ms", idle),
        ("grpc.max_connection_age_ms", age),
        ("grpc.max_connection_age_grace_ms", grace),
        ("grpc.max_concurrent_streams", settings.grpc_calls),
        ("grpc.max_receive_message_length", min(2 * settings.largest_body, _MOST_BYTES)),
        ("grpc.max_metadata_size", metadata),
        ("grpc.absolute_max_metadata_size", metadata),
        ("grpc.per_message_decompression", 0),
        ("grpc.experimental.tcp_max_read_buffer_size", _READ_BYTES),
        ("grpc.so_reuseport", 0),
    ]


class _Handlers(grpc.GenericRpcHandler):
    """Finds the handler of a call; one that isn't in the table is UNIMPLEMENTED."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        method = _METHODS.get(handler_call_details.method)
        if method is None:
            return None

        async def answer(
            messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]
        ) -> bytes:
            body: bytes = await self._call(method, messages, context)
            return body

        return grpc.stream_unary_rpc_method_handler(answer)


class _Exchange:
    """A call as an ASGI request, and what the application answers: `status` and `body`."""

    def __init__(
        self, method: _Method, messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        self.status = 0
        self.body = b""
        self._messages = messages
        self._is_read = False
        headers = [(b"content-type", method.content_type.encode())]
        for key, value in context.invocation_metadata() or ():
            name = key.lower().encode()
            if name not in _LEFT_OUT and not name.startswith((b"grpc-", b":")):
                headers.append((name, value.encode() if isinstance(value, str) else value))
        self._scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "2",
            "method": "POST",
            "scheme": "http",
            "path": method.path,
            "raw_path": method.path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": headers,
            "client": None,
            "server": None,
            "state": {},
        }

    async def run(self, app: ASGIApp) -> None:
        """Have the application answer."""
        await app(self._scope, self._receive, self._send)

    async def _receive(self) -> Message:
        """Return the message of the call as the body of the request; after it, wait for good."""
        if self._is_read:
            await asyncio.Event().wait()
        self._is_read = True
        body = await anext(self._messages, None)
        if body is None:  # a call has a message, be it empty, unless the client has gone
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": body, "more_body": False}

    async def _send(self, message: Message) -> None:
        """Take a part of the answer."""
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")
