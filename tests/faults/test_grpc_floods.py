"""Floods of the port of gRPC: crowds of connections, stalled streams, endless headers and unread answers.

They cost the server little, and HTTP is served meanwhile. Frames of HTTP/2 are written by hand, since no
client sends what these do.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.collector.calling import KEY, PATIENCE_SECONDS, call, channel_to, refused_call
from tests.collector.exporting import of_stack, speaks_grpc
from tests.collector.http.test_header_costs import cpu_seconds
from tests.collector.routes.test_otlp_grpc import METHOD, silent_until
from tests.constants import GRPC_CONNECTION_SECONDS
from tests.cpu_meter import cpu_seconds_for
from tests.faults.stacks import profile_of
from tests.faults.test_floods import wait_until
from tests.faults.test_memory import MIB, memory
from tests.server import Server

MOST = 50
# With few descriptors, as many as this process may open.
CROWD = 300
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW_UPDATE, _CONTINUATION = 0, 1, 3, 4, 6, 8, 9
_ACK, _END_STREAM, _END_HEADERS = 1, 1, 4
_CANCEL = struct.pack(">I", 8)
_NO_WINDOW = struct.pack(">HI", 4, 0)
_EMPTY_MESSAGE = bytes(5)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame of HTTP/2."""
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def hello(settings: bytes = b"") -> bytes:
    """Return how a client begins a connection, with the acknowledgement of the server's settings."""
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(_SETTINGS, 0, 0, settings) + frame(_SETTINGS, _ACK, 0)


def field(name: str, value: str) -> bytes:
    """Return a header field that neither compresses nor uses a table."""
    return b"\x00" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    length, encoded = len(text), bytearray()
    if length < 127:
        return bytes([length]) + text.encode()
    length -= 127
    while length > 127:
        encoded.append(length & 127 | 128)
        length >>= 7
    return b"\x7f" + encoded + bytes([length]) + text.encode()


HEADERS = b"".join(
    field(name, value)
    for name, value in (
        (":method", "POST"), (":scheme", "http"), (":path", METHOD), (":authority", "collector"),
        ("content-type", "application/grpc"), ("te", "trailers"), *KEY,
    )
)  # fmt: skip


def begin(streams: Iterable[int], flags: int = _END_HEADERS) -> bytes:
    """Return the heads of calls."""
    return b"".join(frame(_HEADERS, flags, 2 * number + 1, HEADERS) for number in streams)


def large_head(number: int, count: int, *, has_end: bool) -> bytes:
    """Return the head of a call in this many frames of 8 KB."""
    stream = 2 * number + 1
    more = (frame(_CONTINUATION, 0, stream, field(f"x-{n}", "y" * 8_000)) for n in range(count))
    last = frame(_CONTINUATION, _END_HEADERS, stream) if has_end else b""
    return b"".join((begin([number], flags=0), *more, last))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that waits two seconds for anything."""
    settings = {
        "PGOF_GRPC_CONNECTIONS": str(MOST),
        "PGOF_HEAD_TIMEOUT": "2",
        "PGOF_IDLE_TIMEOUT": "2",
        "PGOF_BODY_TIMEOUT": "2",
    }
    with speaks_grpc(tmp_path_factory.mktemp("floods"), settings) as server:
        call(server, of_stack("warm", "up"), METHOD)
        assert_served(server, "warm")
        yield server


def connect(server: Server, sent: bytes) -> socket.socket:
    """Open a connection to the port of gRPC, and send what is taken."""
    host, _, port = server.wait_for_log("listening for gRPC")["address"].rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=120)
    with suppress(OSError):  # the server has closed it already
        connection.sendall(sent)
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Return whether the server has closed a connection. What arrived on it is dropped."""
    connection.setblocking(False)
    try:
        while connection.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def assert_served(server: Server, name: str) -> None:
    """Check that HTTP is served."""
    assert server.client.get("/healthz").status_code == 200
    assert server.submit(profile_of(name)).status_code == 204


def descriptors(server: Server) -> int:
    """Return how many files and connections the server has open."""
    return len([*Path(f"/proc/{server.process.pid}/fd").iterdir()])


@pytest.mark.parametrize("sent", [b"", b"PRI * HT", hello()], ids=["silent", "half a preface", "idle"])
def test_a_crowd_has_no_more_connections_than_the_setting_and_not_for_long(
    server: Server, sent: bytes
) -> None:
    before, most = memory(server, "VmHWM"), descriptors(server) + MOST + 10
    with ExitStack() as stack:
        crowd = [stack.enter_context(connect(server, sent)) for _ in range(6 * MOST)]
        assert_served(server, f"crowd {sent!r}")
        assert descriptors(server) < most
        wait_until(lambda: all(map(is_closed, crowd)))
    assert memory(server, "VmHWM") - before < 64 * MIB
    wait_until(lambda: _takes_calls(server))


def _takes_calls(server: Server) -> bool:
    try:
        return call(server, of_stack("after", "crowd"), METHOD) == b""
    except grpc.RpcError:
        return False


def test_stalled_streams_are_refused_or_given_up(server: Server) -> None:
    """Most messages here are half sent, and all streams of all connections stay open."""
    before = memory(server, "VmHWM")
    half = b"\x00" + (1 << 20).to_bytes(4) + bytes(4000)
    sent = (
        hello() + begin(range(16)) + b"".join(frame(_DATA, 0, 2 * number + 1, half) for number in range(16))
    )
    with ExitStack() as stack:
        crowd = [stack.enter_context(connect(server, sent)) for _ in range(MOST)]
        assert_served(server, "stalled")
        wait_until(lambda: all(map(is_closed, crowd)))
    assert memory(server, "VmHWM") - before < 96 * MIB
    wait_until(lambda: _takes_calls(server))


def flood(connection: socket.socket, sent: Callable[[int], bytes], size: int) -> None:
    """Send bytes, a piece for each number, until `size` are sent or the server takes no more."""
    count = number = 0
    with suppress(OSError):
        while count < size:
            piece = sent(number)
            connection.settimeout(10)
            connection.sendall(piece)
            count += len(piece)
            number += 1


def test_headers_without_an_end_cost_little(server: Server) -> None:
    before = memory(server, "VmHWM")
    more = frame(_CONTINUATION, 0, 1, field("x-endless", "y" * 16_000)) * 4
    with connect(server, hello() + begin([0], flags=0)) as connection:
        flood(connection, lambda _: more, 500 * MIB)
        assert_served(server, "endless")
    assert memory(server, "VmHWM") - before < 128 * MIB


def test_streams_that_are_reset_at_once_cost_little(server: Server) -> None:
    def resets(number: int) -> bytes:
        streams = range(number * 100, (number + 1) * 100)
        return b"".join(begin([stream]) + frame(_RESET, 0, 2 * stream + 1, _CANCEL) for stream in streams)

    before = memory(server, "VmHWM")
    with connect(server, hello()) as connection:
        flood(connection, resets, 4 * MIB)
        assert_served(server, "reset")
    assert memory(server, "VmHWM") - before < 64 * MIB
    assert not server.events("unexpected error")


@pytest.mark.parametrize(
    "sent",
    [
        frame(_PING, 0, 0, bytes(8)),
        frame(_SETTINGS, 0, 0),
        frame(_SETTINGS, 0, 0, b"".join(struct.pack(">HI", 0x1000 + n, 1) for n in range(2700))),
        frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)),
        frame(0xEE, 0, 0, bytes(100)),
    ],
    ids=["ping", "settings", "large settings", "window", "unknown"],
)
def test_frames_without_a_call_end_the_connection(server: Server, sent: bytes) -> None:
    before = cpu_seconds(server.process.pid)
    for _ in range(5):
        with connect(server, hello()) as connection:
            flood(connection, lambda _: sent * 100, 20 * MIB)
            assert_says(connection, b"without a call")
    assert cpu_seconds(server.process.pid) - before < cpu_seconds_for(1)
    assert_served(server, f"frames {sent[:30]!r}")


def assert_says(connection: socket.socket, what: bytes) -> None:
    """Check that the last frame of a connection, GOAWAY, gives this reason."""
    said = b""
    with suppress(OSError):
        while part := connection.recv(1 << 16):
            said += part
    assert what in said, said[-200:]


def test_metadata_that_is_too_large_is_refused(server: Server) -> None:
    body = of_stack("a", "metadata")
    code, details = refused_call(server, body, METHOD, metadata=(*KEY, ("x-large", "y" * 8_190)))
    assert (code, "the limit is 8,192" in details) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True), details
    many = tuple((f"x-{number}", "y") for number in range(110))
    code, details = refused_call(server, body, METHOD, metadata=(*KEY, *many))
    assert (code, "keys; the limit is 100" in details) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True), details
    code, _ = refused_call(server, body, METHOD, metadata=(*KEY, ("x-huge", "y" * (1 << 20))))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert call(server, body, METHOD, metadata=(*KEY, ("x-less", "y" * 8000))) == b""


def test_a_call_that_sends_nothing_has_the_time_of_a_body(server: Server) -> None:
    with channel_to(server) as channel:
        event = threading.Event()
        made: Any = channel.stream_unary(METHOD)
        error = made.future(silent_until(event), metadata=KEY).exception(PATIENCE_SECONDS)
        event.set()
    assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert "2 seconds" in error.details()
    assert not server.events("unexpected error")


@pytest.mark.parametrize(("has_end", "megabytes"), [(True, 80), (False, 40)])
def test_a_crowd_with_large_heads_takes_little_in_total_and_gives_it_back(
    tmp_path: Path, megabytes: int, *, has_end: bool
) -> None:
    """The heads come in many frames, and are those of many calls, or one that goes on and on."""
    calls = b"".join(large_head(number, 12, has_end=True) for number in range(16))
    what = calls if has_end else large_head(0, 500, has_end=False)
    with speaks_grpc(tmp_path, {}) as server:
        call(server, of_stack("warm", "up"), METHOD)
        server.wait_until_read_ahead()  # by a worker that starts for it
        before = memory(server, "VmRSS")
        with ExitStack() as stack:
            crowd = [stack.enter_context(connect(server, hello())) for _ in range(CROWD)]
            most = peak_while_sent(server, crowd, what)
            assert_served(server, "large heads")
        assert most - before < megabytes * MIB
        wait_until(lambda: memory(server, "VmRSS") - before < 48 * MIB)


def peak_while_sent(server: Server, crowd: list[socket.socket], what: bytes) -> int:
    """Send this on all connections, as long as they take any of it; return the most memory meanwhile."""
    left, most = {connection: memoryview(what) for connection in crowd}, 0
    for connection in crowd:
        connection.setblocking(False)
    while ready := select.select([], left, [], 2)[1]:
        for connection in ready:
            try:
                left[connection] = left[connection][connection.send(left[connection]) :]
            except OSError:  # the server has closed it
                left[connection] = memoryview(b"")
            if not left[connection]:
                del left[connection]
        most = max(most, memory(server, "VmRSS"))
    return most


def test_a_connection_whose_answers_nobody_reads_ends_by_its_age(tmp_path: Path) -> None:
    settings = {
        GRPC_CONNECTION_SECONDS: "1", "PGOF_BODY_TIMEOUT": "1", "PGOF_ANSWER_TIMEOUT": "1",
        "PGOF_IDLE_TIMEOUT": "9999",
    }  # fmt: skip
    with speaks_grpc(tmp_path, settings) as server:
        message = frame(_DATA, _END_STREAM, 1, _EMPTY_MESSAGE)
        with connect(server, hello(_NO_WINDOW) + begin([0]) + message) as connection:
            wait_until(lambda: bool(server.events("request")))
            wait_until(lambda: is_closed(connection))
        for number in range(2):  # clients open another connection, and lose no call
            assert call(server, of_stack(f"{number}", "aged"), METHOD) == b""
            time.sleep(1)
        assert server.stop() == 0
