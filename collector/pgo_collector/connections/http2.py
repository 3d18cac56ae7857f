"""One connection of the gRPC port: HTTP/2 by the package h2, with bounds on what its client sends.

h2 knows the protocol. This module gives it a frame at a time, so that a flood of small frames takes turns of
the event loop, and closes a connection whose client sends frame after frame without a call, or a head without
an end. A body is read as far as its reader has got: HTTP/2's windows make the client wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from hyperframe.frame import ContinuationFrame, DataFrame, GoAwayFrame, HeadersFrame, RstStreamFrame

from pgo_collector.connections.turns import Turns

Fields = Sequence[tuple[bytes, bytes]]

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_HEAD: Final = 9
_LARGEST_FRAME: Final = 1 << 14
_END_HEADERS: Final = 0x4
# How much is read of a connection before it is parsed, and how much may wait to be sent on it.
_READ_BYTES: Final = 64 << 10
_UNSENT_BYTES: Final = 64 << 10
# How much of a body may arrive before it is read.
_WINDOW_BYTES: Final = 256 << 10
# Frames that a client may send beyond those that its calls need, and how many an answered call adds. 256
# bytes of a body add one, and 256 of a head count as one.
_MOST_SPARE_FRAMES: Final = 1000
_FRAMES_PER_CALL: Final = 100
_BYTES_PER_FRAME: Final = 256
# The largest frame that is neither head nor body: h2 takes 10 ms and more for a large one of settings.
_MOST_CONTROL_BYTES: Final = 512
# How long a client has to close a connection after its last call, when it has been told to leave.
_LEAVING_SECONDS: Final = 1.0
_NO_LAST_STREAM: Final = (1 << 31) - 1
# How long, and up to how much, is dropped of what arrives on a connection that has ended: closing it with
# unread data resets it, and the client may lose the reason.
_ENDING_SECONDS: Final = 5.0
_MOST_DROPPED_BYTES: Final = 64 << 20
# How much is dropped of what still arrives on a stream that is answered.
_MOST_DROPPED_OF_STREAM: Final = 1 << 20


class StreamLost(Exception):
    """The client has given up the call, or its connection is lost."""


@dataclass(frozen=True, slots=True)
class Http2Limits:
    """The bounds of the connections of a port: how many, of how much, and for how long (seconds)."""

    connections: int
    streams: int
    fields_bytes: int
    head_seconds: float
    idle_seconds: float
    age_seconds: float
    grace_seconds: float


@dataclass(slots=True)
class Port:
    """A port, which its connections share. `serve` is called with each request when its head has arrived."""

    limits: Http2Limits
    turns: Turns
    serve: Callable[[Stream], None]
    connections: set[Http2Connection] = field(default_factory=set)
    buffer: bytearray = field(default_factory=lambda: bytearray(_READ_BYTES))

    async def close(self, grace_seconds: float) -> None:
        """Have the clients leave; cut the connections on which calls take longer than the grace."""
        for connection in [*self.connections]:
            connection.leave()
        await self._wait_for_all(grace_seconds)
        for connection in [*self.connections]:
            connection.abort()
        await self._wait_for_all()

    async def _wait_for_all(self, seconds: float | None = None) -> None:
        if lost := [connection.lost for connection in self.connections]:
            await asyncio.wait(lost, timeout=seconds)


class Stream:
    """A request: the fields of its head, its body as it arrives, and its answer."""

    def __init__(self, connection: Http2Connection, number: int, fields: Fields) -> None:
        self.fields = fields
        self.number = number
        self.has_ended = False
        self.is_lost = False
        self.chunks: deque[tuple[bytes, int]] = deque()  # and how much of the window each takes
        self.unsent: tuple[memoryview, Fields] | None = None
        self.arrived = asyncio.Event()
        self._connection = connection

    @property
    def is_read(self) -> bool:
        """Return whether all of the body has arrived and been read."""
        return self.has_ended and not self.chunks

    async def read(self) -> bytes:
        """Return the next bytes of the body; none at its end. Raises StreamLost."""
        while not self.chunks:
            if self.is_lost:
                raise StreamLost
            if self.has_ended:
                return b""
            self.arrived.clear()
            await self.arrived.wait()
        chunk, size = self.chunks.popleft()
        self._connection.make_room(self, size)
        return chunk

    def answer(self, head: Fields, body: bytes = b"", trailers: Fields = ()) -> None:
        """Answer the request; without trailers, the head is all of the answer."""
        if not self.is_lost:
            self._connection.answer(self, head, body, trailers)


class Http2Connection(asyncio.BufferedProtocol):
    """A connection, from its first byte until it is lost; `lost` is done then."""

    def __init__(self, port: Port) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._port = port
        self._limits = port.limits
        self._http2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self._streams: dict[int, Stream] = {}
        self._dropped: dict[int, int] = {}  # bytes, by the numbers of streams that are answered, not ended
        self._unread = bytearray()
        self._has_begun = self._is_greeted = self._is_leaving = self._has_ended = False
        self._is_cut = self._is_unread = False
        self._head_bytes = self._dropped_bytes = 0
        self._spare_frames = _MOST_SPARE_FRAMES
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        """Begin the connection, or close it if there are too many."""
        self._transport = transport
        if len(self._port.connections) >= self._limits.connections:
            transport.abort()
            return
        self._port.connections.add(self)
        transport.set_write_buffer_limits(_UNSENT_BYTES)
        most_fields = self._limits.fields_bytes
        self._http2.initiate_connection()
        self._http2.update_settings(
            {
                SettingCodes.MAX_CONCURRENT_STREAMS: self._limits.streams,
                SettingCodes.MAX_HEADER_LIST_SIZE: most_fields,
                SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW_BYTES,
            }
        )
        self._http2.decoder.max_header_list_size = most_fields
        self._http2.increment_flow_control_window(self._limits.streams * _WINDOW_BYTES)
        self._send()
        self._set_timer("idle", self._limits.head_seconds, self.abort)
        self._set_timer("age", self._limits.age_seconds, self.leave)

    def connection_lost(self, exc: Exception | None) -> None:
        """Have those who read bodies know."""
        del exc
        self._has_ended = True
        self._port.connections.discard(self)
        for timer in self._timers.values():
            timer.cancel()
        for stream in [*self._streams.values()]:
            self._lose(stream)
        self._unread.clear()
        self.lost.set_result(None)

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return where the next bytes are read to: all connections of a port read to one place."""
        del sizehint
        return self._port.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse what has arrived."""
        if self._has_ended:
            self._dropped_bytes += nbytes
            if self._dropped_bytes > _MOST_DROPPED_BYTES:
                self.abort()
            return
        self._unread += memoryview(self._port.buffer)[:nbytes]
        if not self._is_cut:
            self.go_on()

    def go_on(self) -> None:
        """See Parsing."""
        if self._has_ended or self._transport.is_closing():
            return
        turns = self._port.turns
        stop = turns.begin()
        self._is_cut = False
        try:
            while frame := self._next_frame():
                for event in self._http2.receive_data(frame):
                    self._take(event)
                self._is_cut = monotonic() >= stop and bool(self._unread)
                if self._is_cut or self._has_ended:
                    break
        except ProtocolError:  # h2 has written why
            self._end()
        except _Flood as flood:
            text = str(flood).encode()
            self._http2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM, text)
            self._end()
        finally:
            turns.end()
        self._send()
        if self._is_cut:
            turns.wait(self)
        self._pause_or_resume()

    def pause_writing(self) -> None:
        """Read nothing while the client reads nothing: most frames are answered by one."""
        self._is_unread = True
        self._pause_or_resume()

    def resume_writing(self) -> None:
        """Read on."""
        self._is_unread = False
        self._pause_or_resume()

    def leave(self) -> None:
        """Have the client open another connection, and close this one when its calls are answered."""
        if not self._is_leaving and not self._has_ended:
            self._is_leaving = True
            # Calls may be on their way, so it doesn't say which is the last; h2's own would, and end them.
            self._transport.write(GoAwayFrame(0, last_stream_id=_NO_LAST_STREAM).serialize())
            self._set_timer("age", self._limits.grace_seconds, self.abort)
            self._wait_if_idle()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def make_room(self, stream: Stream, size: int) -> None:
        """Let the client send as many bytes of the body as were read."""
        if size and not self._has_ended:
            self._http2.acknowledge_received_data(size, stream.number)
            self._send()

    def answer(self, stream: Stream, head: Fields, body: bytes, trailers: Fields) -> None:
        """Send an answer, as far as the client has room for it; the rest follows when it makes some."""
        self._http2.send_headers(stream.number, head, end_stream=not trailers)
        if trailers:
            stream.unsent = memoryview(body), trailers
            self._send_rest(stream)
        else:
            self._finish(stream)
        self._send()

    def _next_frame(self) -> bytes:
        """Return the next frame that has arrived in whole; empty if there is none. Raises _Flood."""
        unread = self._unread
        size = _FRAME_HEAD + int.from_bytes(unread[:3])
        if not self._has_begun:
            size = len(_PREFACE)
            self._has_begun = len(unread) >= size
        elif size > _FRAME_HEAD + _LARGEST_FRAME:
            size = _FRAME_HEAD  # of which h2 says that it is too large
        elif len(unread) >= size:
            self._count(unread[3], unread[4], int.from_bytes(unread[5:_FRAME_HEAD]), size - _FRAME_HEAD)
        if len(unread) < size:
            return b""
        frame = bytes(unread[:size])
        del unread[:size]
        return frame

    def _count(self, kind: int, flags: int, stream: int, size: int) -> None:
        """Count a frame. Raises _Flood if there are too many, or one is too large."""
        pieces = size // _BYTES_PER_FRAME
        if kind == DataFrame.type:
            self._allow(pieces - 1)
        elif kind in {HeadersFrame.type, ContinuationFrame.type}:
            self._allow(-pieces - 1)
            self._head_bytes += size
            if self._head_bytes > self._limits.fields_bytes:
                # Which gRPC's clients call RESOURCE_EXHAUSTED; after the end of a connection, they try again.
                calm = ErrorCodes.ENHANCE_YOUR_CALM
                self._transport.write(RstStreamFrame(stream, error_code=calm).serialize())
                raise _Flood(f"the head of a call has more than {self._limits.fields_bytes:,} bytes")
            if flags & _END_HEADERS:
                self._head_bytes = 0
        elif size > _MOST_CONTROL_BYTES:
            raise _Flood(f"a frame without a call has more than {_MOST_CONTROL_BYTES} bytes")
        else:
            self._allow(-1)
        if self._spare_frames < 0:
            raise _Flood(f"more than {_MOST_SPARE_FRAMES:,} frames without a call")

    def _allow(self, frames: int) -> None:
        self._spare_frames = min(self._spare_frames + frames, _MOST_SPARE_FRAMES)

    def _take(self, event: Event) -> None:
        stream = self._streams.get(getattr(event, "stream_id", None) or 0)
        match event:
            case RequestReceived():
                self._stop_timer("idle")
                stream = self._streams[event.stream_id] = Stream(self, event.stream_id, event.headers)
                self._port.serve(stream)
            case DataReceived() | StreamEnded() | StreamReset() if stream:
                self._take_part(stream, event)
            case DataReceived():
                self._drop(event.stream_id, event.flow_controlled_length)
            case StreamEnded() | StreamReset():
                self._dropped.pop(event.stream_id, None)
            case RemoteSettingsChanged() if not self._is_greeted:
                self._is_greeted = True
                self._wait_if_idle()
            case WindowUpdated() | RemoteSettingsChanged():
                for stream in [*self._streams.values()]:
                    self._send_rest(stream)
            case ConnectionTerminated():
                self._end()

    def _take_part(self, stream: Stream, event: DataReceived | StreamEnded | StreamReset) -> None:
        match event:
            case DataReceived():
                stream.chunks.append((event.data, event.flow_controlled_length))
                stream.arrived.set()
            case StreamEnded():
                stream.has_ended = True
                stream.arrived.set()
            case StreamReset():
                self._lose(stream)
                self._wait_if_idle()

    def _send_rest(self, stream: Stream) -> None:
        """Send as much of the answer as the client has room for, and the trailers after all of it."""
        if stream.unsent is None:
            return
        body, trailers = stream.unsent
        number = stream.number
        while body:
            room = self._http2.local_flow_control_window(number)
            size = min(room, self._http2.max_outbound_frame_size, len(body))
            if size <= 0:
                stream.unsent = body, trailers
                return
            self._http2.send_data(number, bytes(body[:size]))
            body = body[size:]
        self._http2.send_headers(number, trailers, end_stream=True)
        self._finish(stream)

    def _finish(self, stream: Stream) -> None:
        """Forget a stream that is answered. What the client still sends of it is dropped.

        It isn't reset: to what was on its way then, h2 would answer with errors, which proxies pass on.
        """
        if not stream.has_ended:
            self._dropped[stream.number] = 0
        self._lose(stream)
        self._allow(_FRAMES_PER_CALL)
        self._wait_if_idle()

    def _drop(self, number: int, size: int) -> None:
        """Drop what a client sends of an answered stream; of one that sends much, take no more."""
        self._http2.acknowledge_received_data(size, number)
        self._dropped[number] += size
        if self._dropped[number] > _MOST_DROPPED_OF_STREAM:
            del self._dropped[number]
            self._http2.reset_stream(number, ErrorCodes.NO_ERROR)

    def _lose(self, stream: Stream) -> None:
        del self._streams[stream.number]
        stream.is_lost = True
        for _, size in stream.chunks:
            self.make_room(stream, size)
        stream.chunks.clear()
        stream.arrived.set()

    def _wait_if_idle(self) -> None:
        """Wait for a call, or for the client to leave, if there is no call."""
        if self._streams or self._has_ended:
            return
        if self._is_leaving:
            self._set_timer("idle", _LEAVING_SECONDS, self._say_goodbye)
        else:
            self._set_timer("idle", self._limits.idle_seconds, self.leave)

    def _say_goodbye(self) -> None:
        self._http2.close_connection()
        self._end()

    def _set_timer(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        self._stop_timer(name)
        self._timers[name] = asyncio.get_running_loop().call_later(seconds, call)

    def _stop_timer(self, name: str) -> None:
        if name in self._timers:
            self._timers.pop(name).cancel()

    def _send(self) -> None:
        """Send what h2 has written. Its errors are among it."""
        if sent := self._http2.data_to_send():
            self._transport.write(sent)

    def _end(self) -> None:
        """Send what is written, and close the connection once the client has."""
        if not self._has_ended:
            self._send()
            self._has_ended = True
            self._unread.clear()
            for stream in [*self._streams.values()]:
                self._lose(stream)
            self._transport.write_eof()
            self._set_timer("idle", _ENDING_SECONDS, self.abort)

    def _pause_or_resume(self) -> None:
        if self._transport.is_closing():
            return
        if self._is_cut or self._is_unread:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


class _Flood(Exception):
    """The client sends what no client needs to."""
