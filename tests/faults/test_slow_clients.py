"""A crowd of slow and silent clients: others are served as if they were alone."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from select import select

import pytest

from tests.faults.connections import connect, head
from tests.faults.stacks import large_profile, profile_of, tally
from tests.server import Server

CROWD = 16
BODY_SECONDS = 1


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server with long timeouts, whose merge is larger than what a connection buffers."""
    with Server(tmp_path / "home", {"PGOF_BODY_TIMEOUT": "600", "PGOF_HEAD_TIMEOUT": "600"}) as server:
        assert server.submit(large_profile("large")).status_code == 204
        yield server


def test_a_crowd_of_slow_clients_holds_up_nobody(server: Server) -> None:
    before = server.merge().content
    with ExitStack() as stack:
        senders = [stack.enter_context(connect(server)) for _ in range(CROWD)]
        silent = [stack.enter_context(connect(server)) for _ in range(CROWD)]
        readers = [stack.enter_context(connect(server, receive_buffer=4096)) for _ in range(CROWD)]
        for sender in senders:
            sender.sendall(head("POST", "/v1/submit", server.submit_key, "Content-Length: 100"))
        for reader in readers:
            reader.sendall(head("GET", "/v1/merge", server.merge_key, "Connection: close"))
            assert reader.recv(12) == b"HTTP/1.1 200"
        for letter in "ab":
            for sender in senders:
                sender.sendall(b"x")
            assert server.submit(profile_of(letter)).status_code == 204
            assert tally(server.merge().content)[letter] == 1
            assert server.combine().status_code == 200
        assert not select(senders, [], [], 0)[0], "all of them were still waited for"
        assert server.client.get("/healthz").text == "OK"
        received = [read_to_the_end(reader) for reader in readers]
        assert all(content.endswith(before) for content in received)
        for connection in silent:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: collector\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 200"
    wait_until_nothing_comes_in(server)


def test_a_crowd_that_sends_too_slowly_is_given_up(tmp_path: Path) -> None:
    """A body is bounded in time as a whole, however often a part of it comes."""
    with Server(tmp_path / "home", {"PGOF_BODY_TIMEOUT": str(BODY_SECONDS)}) as server, ExitStack() as stack:
        started = time.monotonic()
        waiting = [stack.enter_context(connect(server)) for _ in range(CROWD)]
        for sender in waiting:
            sender.sendall(head("POST", "/v1/submit", server.submit_key, "Content-Length: 1000000"))
        while waiting:
            assert time.monotonic() < started + 120
            for sender in waiting:
                with suppress(ConnectionError):  # the server has just closed it
                    sender.sendall(b"x")
            for sender in select(waiting, [], [], 0.05)[0]:
                assert sender.recv(12) == b"HTTP/1.1 408"
                assert time.monotonic() - started >= BODY_SECONDS
                waiting.remove(sender)
        assert server.client.get("/healthz").text == "OK"
        wait_until_nothing_comes_in(server)


def wait_until_nothing_comes_in(server: Server) -> None:
    deadline = time.monotonic() + 60
    while list((server.data / "incoming").iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def read_to_the_end(connection: socket.socket) -> bytes:
    received = bytearray()
    while content := connection.recv(1 << 20):
        received += content
    return bytes(received)


def test_clients_that_go_away_leave_nothing(server: Server) -> None:
    before = server.merge().content
    profile = profile_of("gone")
    for size in range(0, len(profile), 16):
        with connect(server) as connection:
            connection.sendall(
                head("POST", "/v1/submit", server.submit_key, f"Content-Length: {len(profile)}")
                + profile[:size]
            )
    with connect(server, receive_buffer=4096) as connection:
        connection.sendall(head("GET", "/v1/merge", server.merge_key))
        connection.recv(12)
    assert server.submit(profile_of("here")).status_code == 204
    wait_until_nothing_comes_in(server)
    assert tally(server.merge().content) == {"large": 1, "here": 1}
    assert server.merge().content != before
