"""Connections of the gRPC port, in one process: windows, leaving, and hostile frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingAckReceived,
    SettingsAcknowledged,
    StreamEnded,
    StreamReset,
)
from h2.frame_buffer import FrameBuffer
from h2.settings import SettingCodes
from hypothesis import given
from hypothesis import strategies as st
from pgo_collector.connections.http2 import Http2Connection, Http2Limits, Port, Stream, StreamLost
from pgo_collector.connections.turns import Turns

_LIMITS = Http2Limits(
    connections=2,
    streams=4,
    fields_bytes=16 << 10,
    head_seconds=30,
    idle_seconds=30,
    age_seconds=30,
    grace_seconds=30,
)
_HEAD = [(":method", "POST"), (":scheme", "http"), (":path", "/echo"), (":authority", "here")]
_OK = ((b":status", b"200"),)
_PATIENCE_SECONDS = 60.0
_ROOM = 8000


class _Client:
    """A client of HTTP/2 on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.http2 = H2Connection(H2Configuration(header_encoding="utf-8"))
        self.events: list[Event] = []
        self._reader, self._writer = reader, writer

    async def send(self, raw: bytes = b"") -> None:
        self._writer.write(self.http2.data_to_send() + raw)
        await self._writer.drain()

    async def receive(self) -> bool:
        """Take what comes next; return False at the end."""
        received = await asyncio.wait_for(self._reader.read(1 << 16), _PATIENCE_SECONDS)
        self.events += self.http2.receive_data(received)
        await self.send()
        return bool(received)

    async def receive_until(self, *kinds: type[Event]) -> None:
        while not any(isinstance(event, kinds) for event in self.events):
            assert await self.receive(), self.events

    async def answered(self) -> set[int]:
        """Return the streams that end until the connection does; h2 takes no answers after a farewell."""
        frames, ended = FrameBuffer(), set[int]()
        frames.max_frame_size = self.http2.max_inbound_frame_size
        while received := await asyncio.wait_for(self._reader.read(1 << 16), _PATIENCE_SECONDS):
            frames.add_data(received)
            ended |= {frame.stream_id for frame in frames if "END_STREAM" in frame.flags}
        return ended

    def body(self) -> bytes:
        return b"".join(event.data for event in self.events if isinstance(event, DataReceived))

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


class _Echo:
    """A port whose requests are answered with their body, or with what they ask for."""

    def __init__(self, limits: Http2Limits = _LIMITS, *, answers_at_once: bool = False) -> None:
        self.port = Port(limits, Turns(), self._begin)
        self._answers_at_once = answers_at_once
        self.streams: list[Stream] = []
        self.lost = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.faults: list[Any] = []
        self._began = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def _begin(self, stream: Stream) -> None:
        self.streams.append(stream)
        self._began.set()
        if self._answers_at_once:
            stream.answer(_OK)
            return
        task = asyncio.create_task(self._answer(stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def has_begun(self, number: int) -> None:
        """Wait until this many requests have begun."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while len(self.streams) < number:
                self._began.clear()
                await self._began.wait()

    async def _answer(self, stream: Stream) -> None:
        body = bytearray()
        try:
            await self.may_answer.wait()
            while part := await stream.read():
                body += part
        except StreamLost:
            self.lost += 1
            return
        stream.answer(_OK, bytes(body), ((b"grpc-status", b"0"),))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Callable[[], Coroutine[Any, Any, _Client]]]:
        """Listen until the block ends, and yield what opens a connection."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.faults.append(context))
        server = await loop.create_server(lambda: Http2Connection(self.port), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()

        clients = []

        async def connect() -> _Client:
            client = _Client(*await asyncio.open_connection(host, port))
            clients.append(client)
            client.http2.initiate_connection()
            return client

        try:
            yield connect
        finally:
            self.may_answer.set()
            server.close()
            await self.port.close(0)
            await asyncio.gather(*self._tasks)
            for client in clients:
                await client.close()
        assert not self.faults
        assert not self.port.connections


def _ask(client: _Client, body: bytes = b"", number: int = 1, *, is_over: bool = True) -> None:
    client.http2.send_headers(number, _HEAD)
    client.http2.send_data(number, body, end_stream=is_over)


def test_a_body_waits_for_its_reader_and_an_answer_for_its_client() -> None:
    async def run() -> None:
        echo, size = _Echo(), 1 << 20
        async with echo.running() as connect:
            client = await connect()
            client.http2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: _ROOM})
            client.http2.send_headers(1, _HEAD)
            await client.send()
            await client.receive_until(SettingsAcknowledged)
            echo.may_answer.clear()
            left = size
            while left:
                room = min(
                    client.http2.local_flow_control_window(1), client.http2.max_outbound_frame_size, left
                )
                if room:
                    client.http2.send_data(1, bytes(room), end_stream=room == left)
                    left -= room
                    await client.send()
                elif echo.may_answer.is_set():
                    await client.receive()
                else:
                    (stream,) = echo.streams
                    assert sum(size for _, size in stream.chunks) <= 256 << 10
                    echo.may_answer.set()
            while len(client.body()) < size:
                before = len(client.events)
                assert await client.receive()
                for event in client.events[before:]:
                    if isinstance(event, DataReceived):
                        assert len(event.data) <= _ROOM
                        client.http2.acknowledge_received_data(event.flow_controlled_length, 1)
                await client.send()
            await client.receive_until(StreamEnded)
            assert client.body() == bytes(size)
            await client.close()

    asyncio.run(run())


def test_one_connection_more_than_the_limit_is_closed_at_once() -> None:
    async def run() -> None:
        async with _Echo().running() as connect:
            *clients, last = [await connect() for _ in range(3)]
            with suppress(ConnectionResetError):
                assert not await last.receive()
            await last.close()
            for client in clients:
                _ask(client, b"hello")
                await client.send()
                await client.receive_until(StreamEnded)
                assert client.body() == b"hello"
                await client.close()

    asyncio.run(run())


def test_who_is_told_to_leave_gets_the_answers_of_calls_on_their_way() -> None:
    async def run() -> None:
        echo = _Echo()
        async with echo.running() as connect:
            client = await connect()
            echo.may_answer.clear()
            _ask(client, b"before")
            await client.send()
            await echo.has_begun(1)
            closing = asyncio.create_task(echo.port.close(_PATIENCE_SECONDS))
            await asyncio.sleep(0)
            _ask(client, b" after", 3)  # sent before the client has read that it should leave
            await client.send()
            await echo.has_begun(2)
            echo.may_answer.set()
            assert await client.answered() == {1, 3}
            await client.close()
            await closing

    asyncio.run(run())


def test_a_call_that_is_given_up_is_lost_for_who_reads_it() -> None:
    async def run() -> None:
        echo = _Echo()
        async with echo.running() as connect:
            client = await connect()
            _ask(client, b"part", is_over=False)
            await client.send()
            await echo.has_begun(1)
            client.http2.reset_stream(1)
            _ask(client, b"next", 3)
            await client.send()
            await client.receive_until(StreamEnded)
            assert (echo.lost, client.body()) == (1, b"next")
            _ask(client, b"part", 5, is_over=False)
            await client.send()
            await echo.has_begun(3)
            await client.close()
        assert echo.lost == 2

    asyncio.run(run())


def test_what_follows_an_answer_is_dropped_and_is_no_error() -> None:
    async def run() -> None:
        echo = _Echo(answers_at_once=True)
        async with echo.running() as connect:
            client = await connect()
            for number, size in ((1, 30_000), (3, 30_000)):
                client.http2.send_headers(number, _HEAD)
                for _ in range(size // 10_000):
                    client.http2.send_data(number, bytes(10_000))
                await client.send()
            while len([event for event in client.events if isinstance(event, StreamEnded)]) < 2:
                assert await client.receive()
            client.http2.send_data(1, b"", end_stream=True)
            client.http2.ping(b"still up")
            await client.send()
            await client.receive_until(PingAckReceived)
            assert not [event for event in client.events if isinstance(event, StreamReset)]
            while not any(isinstance(event, StreamReset) for event in client.events):
                if room := min(client.http2.local_flow_control_window(3), 16_000):
                    client.http2.send_data(3, bytes(room))
                    await client.send()
                else:
                    assert await client.receive()
            await client.close()

    asyncio.run(run())


@given(st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=12), st.booleans()), max_size=4))
def test_no_bytes_lead_to_an_unexpected_error(edits: list[tuple[int, bytes, bool]]) -> None:
    async def run() -> None:
        echo = _Echo()
        async with echo.running() as connect:
            client = await connect()
            _ask(client, b"\0\0\0\0\5hello")
            client.http2.ping(b"12345678")
            client.http2.send_headers(3, _HEAD, end_stream=True)
            client.http2.reset_stream(3)
            raw = bytearray(client.http2.data_to_send())
            for place, piece, is_inserted in edits:
                at = place % len(raw)
                raw[at : at if is_inserted else at + len(piece)] = piece
            await client.send(bytes(raw))
            while not client.events or not isinstance(
                client.events[-1], StreamEnded | StreamReset | ConnectionTerminated
            ):
                if not await _came(client):
                    break
            await client.close()

    asyncio.run(run())


async def _came(client: _Client) -> bool:
    """Take what comes within a moment, if anything, and if the client can read it."""
    try:
        return await asyncio.wait_for(client.receive(), 0.05)
    except Exception:  # noqa: BLE001 - what the server says to a client that is out of step is its matter
        return False
