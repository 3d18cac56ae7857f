"""A server that is told to stop answers every request on the connections that it has accepted."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.stacks import profile_of, tally
from tests.server import Server, bearer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "home") as server:
        yield server


@contextmanager
def connected(server: Server) -> Iterator[socket.socket]:
    """Open a connection that the server has accepted: it has answered on a later one."""
    host, _, port = server.base_url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=120) as connection:
        server.client.get("/healthz", headers={"Connection": "close"})
        yield connection


def request(server: Server, stack: str) -> bytes:
    profile = profile_of(stack)
    headers = bearer(server.submit_key) | {"Host": "x", "Content-Length": str(len(profile))}
    lines = ["POST /v1/submit HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + profile


def terminate(server: Server) -> None:
    """Tell the server to stop, and wait until it takes no more connections."""
    server.process.terminate()
    host, _, port = server.base_url.removeprefix("http://").partition(":")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.3)  # the server has looked at all connections by now
            return
        time.sleep(0.01)
    pytest.fail("it still listens")


def answer_on(connection: socket.socket) -> bytes:
    """Return all that comes until the server closes the connection."""
    received = b""
    while chunk := connection.recv(65536):
        received += chunk
    return received


@pytest.mark.parametrize("already", [0, 30, 160], ids=["nothing", "half of the head", "half of the body"])
def test_a_request_that_comes_later_on_a_new_connection(server: Server, already: int) -> None:
    message = request(server, "late")
    with connected(server) as connection:
        connection.sendall(message[:already])
        if already:
            server.client.get("/healthz", headers={"Connection": "close"})
        terminate(server)
        connection.sendall(message[already:])
        answer = answer_on(connection)
    assert answer.startswith(b"HTTP/1.1 204")
    assert b"connection: close" in answer
    assert server.wait() == 0
    server.start()
    assert tally(server.merge().content) == {"late": 1}


def test_a_request_whose_head_has_begun_on_a_connection_that_was_used(server: Server) -> None:
    message = request(server, "second")
    with connected(server) as connection:
        connection.sendall(request(server, "first"))
        assert connection.recv(65536).startswith(b"HTTP/1.1 204")
        connection.sendall(message[:30])
        server.client.get("/healthz", headers={"Connection": "close"})
        terminate(server)
        connection.sendall(message[30:])
        assert answer_on(connection).startswith(b"HTTP/1.1 204")
    assert server.wait() == 0


def test_a_connection_that_says_nothing_does_not_keep_it(server: Server) -> None:
    with connected(server) as connection:
        terminate(server)
        assert answer_on(connection) == b""
        assert server.wait() == 0
