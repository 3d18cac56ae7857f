"""No shape of a request holds up the event loop: each turn is short, whatever arrives on many connections."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import uvloop
from pgo_collector.connections.connection import Connection, State
from pgo_collector.connections.connection_pool import ConnectionLimits, ConnectionPool
from pgo_collector.connections.drained_body import DrainBody
from pgo_collector.settings import Settings
from starlette.types import Message, Receive, Scope, Send

from tests.cpu_meter import cpu_seconds_for
from tests.faults.connections import chunk, received, statuses

pytestmark = pytest.mark.any_store
LONGEST_TURN = 0.05
CROWD = 20
FOLLOWED = b"POST / HTTP/1.1\r\nHost: collector\r\n"
PLAIN = FOLLOWED + b"Connection: close\r\n"
CHUNKS = b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKED = PLAIN + CHUNKS
LAST = PLAIN + b"\r\n"
READ = 256 << 10
# What h11 takes long for, what it refuses in the end, and how many bytes at once are sent.
SHAPES = {
    "chunks of a byte": (CHUNKED + b"1\r\nx\r\n" * 100_000, 400, READ),
    "chunks of a byte in tiny segments": (CHUNKED + b"1\r\nx\r\n" * 2_000, 400, 7),
    "chunks that are just large enough": (CHUNKED + chunk(b"x" * 64) * 10_000 + chunk(b""), 204, READ),
    "fields": (PLAIN + b"a:\r\n" * 60_000 + b"\r\n", 431, READ),
    "lines of a field": (PLAIN + b"a: b\r\n" + b" \r\n" * 80_000 + b"\r\n", 431, READ),
    "trailers": (CHUNKED + b"0\r\n" + b"a:\r\n" * 60_000 + b"\r\n", 431, READ),
    "blanks before what no field may have": (PLAIN + b"a:" + b" " * 60_000 + b"\0\r\n\r\n", 400, READ),
    "blanks before a return": (PLAIN + b"a:" + b" " * 60_000 + b"\rb\r\n\r\n", 400, READ),
    "blanks in a chunk's line": (CHUNKED + b"1;" + b" " * 60_000 + b"\n\r\n", 400, READ),
    "requests": (LAST, 204, READ),
}


class Turns:
    """Measures each turn of the event loop, in seconds of CPU time of its thread."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._began = time.thread_time()

    def measure(self) -> None:
        """Measure the turn that ends here, and the next one."""
        now = time.thread_time()
        self.longest = max(self.longest, now - self._began)
        self._began = now
        asyncio.get_running_loop().call_soon(self.measure)


async def read_all(scope: Scope, receive: Receive, send: Send) -> None:
    """Say how many bytes the body has; for /refused, which reads none, 0. /stalled never answers."""
    size, more = 0, scope["path"] != "/refused"
    if scope["path"] == "/stalled":
        await receive()
        await asyncio.Event().wait()
    while more:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        more = message["more_body"]
    headers = [(b"size", str(size).encode())]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def serve(
    path: Path, clients: Callable[[tuple[str, int]], Any], **changed: Any
) -> tuple[Any, Counter[str], float]:
    """Serve while `clients` run in threads; return their result, the refusals, and the longest turn."""
    refused: Counter[str] = Counter()
    keys = path / "keys"
    keys.write_text("key\n")
    settings = Settings(directory=path, submit_auth_keys_file=keys, merge_auth_keys_file=keys, **changed)

    async def main() -> tuple[Any, float]:
        pool = ConnectionPool(
            ConnectionLimits.of(settings, 1 << 16, 128), lambda reason: refused.update([reason])
        )
        config = uvicorn.Config(
            DrainBody(read_all),
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        server.server_state = State(pool)
        turns = Turns()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = asyncio.create_task(server.serve([listener]))
            while not server.started:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0)
            turns.measure()
            turns.longest = 0.0
            result = await asyncio.to_thread(clients, listener.getsockname())
            longest = turns.longest
            server.should_exit = True
            await serving
        return result, longest

    result, longest = uvloop.run(main())
    return result, refused, longest


def exchange(address: tuple[str, int], sent: bytes, size: int = READ) -> bytes:
    """Send a request, `size` bytes at a time, and return what comes until the connection is closed."""
    with socket.create_connection(address) as connection:
        connection.settimeout(60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(ConnectionError):
            for start in range(0, len(sent), size):
                connection.sendall(sent[start : start + size])
        return received(connection)


@pytest.mark.parametrize("shape", SHAPES)
def test_each_turn_is_short(tmp_path: Path, shape: str) -> None:
    sent, status, size = SHAPES[shape]

    def crowd(address: tuple[str, int]) -> list[bytes]:
        with ThreadPoolExecutor(CROWD) as clients:
            return [*clients.map(lambda _: exchange(address, sent, size), range(CROWD))]

    answers, _, longest = serve(tmp_path, crowd)
    # Closing a connection on which more comes than is dropped resets it, and its answer may be lost.
    assert {found for answer in answers for found in statuses(answer)} == {status}
    assert longest < cpu_seconds_for(LONGEST_TURN)


@pytest.mark.parametrize("path", [b"/", b"/refused"])
def test_a_body_that_takes_several_turns_is_whole_and_what_follows_is_answered(
    tmp_path: Path, path: bytes
) -> None:
    body = chunk(b"x" * 64) * 5_000 + chunk(b"y" * 100_000) + chunk(b"")
    first = FOLLOWED.replace(b"/", path, 1) + CHUNKS + body
    answer, refused, _ = serve(tmp_path, lambda address: exchange(address, first * 3 + LAST))
    assert statuses(answer) == [204] * 4
    size = 420_000 if path == b"/" else 0
    assert [int(line) for line in re.findall(rb"size: (\d+)", answer)] == [size] * 3 + [0]
    assert not refused


def test_what_waits_for_its_turn_or_the_application_is_not_read(tmp_path: Path) -> None:
    def send(address: tuple[str, int]) -> int:
        sent, part = 0, chunk(b"x" * 64) * 4_000
        with socket.create_connection(address) as connection:
            connection.settimeout(1)
            connection.sendall(CHUNKED.replace(b"/", b"/stalled", 1))
            with suppress(TimeoutError):
                while sent < 64 << 20:
                    sent += connection.send(part)
        return sent

    sent, _, _ = serve(tmp_path, send)
    assert sent < 16 << 20  # what the sockets of both sides buffer, and one read


def test_small_chunks_are_refused(tmp_path: Path) -> None:
    body = CHUNKED + chunk(b"x" * 63) * 300 + chunk(b"")
    answer, refused, _ = serve(tmp_path, lambda address: exchange(address, body))
    assert statuses(answer) == [400]
    assert b"fewer than 64 bytes on average" in answer
    assert refused == {"chunks": 1}


@pytest.mark.parametrize(("size", "number"), [(1, 256), (64, 1000)])
def test_a_short_body_may_have_any_chunks_and_a_long_one_chunks_of_64_bytes(
    tmp_path: Path, size: int, number: int
) -> None:
    body = CHUNKED + chunk(b"x" * size) * number + chunk(b"")
    answer, _, _ = serve(tmp_path, lambda address: exchange(address, body))
    assert statuses(answer) == [204]


@pytest.mark.parametrize("count", [100, 101])
def test_lines_count_as_headers(tmp_path: Path, count: int) -> None:
    head = PLAIN + b"a: b\r\n" + b" c\r\n" * (count - 3) + b"\r\n"
    answer, _, _ = serve(tmp_path, lambda address: exchange(address, head))
    assert statuses(answer) == [204 if count == 100 else 431]
