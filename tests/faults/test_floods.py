"""Floods without a key: endless headers, requests that stay half-sent, and answers that nobody reads.

They cost the server little, and other clients are served meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from tests.faults.connections import LimitedServer, connect, crowd, flood, head, received, statuses
from tests.faults.stacks import large_profile, profile_of
from tests.faults.test_memory import MIB, memory
from tests.server import Server

HEAD = b"GET /healthz HTTP/1.1\r\nHost: collector\r\n"
DESCRIPTORS = 256
CROWD = 600
MOST = 4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the default settings, but for its metrics."""
    with Server(tmp_path_factory.mktemp("floods") / "home", {"PGOF_METRICS_OPEN": "true"}) as server:
        assert server.submit(profile_of("before")).status_code == 204
        yield server


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Server]:
    """A server that waits a second for anything, and has room for few connections."""
    with Server(tmp_path / "home", waiting(1)) as server:
        yield server


def waiting(seconds: int) -> dict[str, str]:
    """Return settings of a server that waits so long for anything, and has room for few connections."""
    waits = dict.fromkeys(("PGOF_HEAD_TIMEOUT", "PGOF_IDLE_TIMEOUT", "PGOF_ANSWER_TIMEOUT"), str(seconds))
    return {**waits, "PGOF_MAX_CONNECTIONS": str(MOST)}


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def get(server: Server, path: str) -> httpx.Response:
    """Ask on a connection of its own, without a key."""
    return httpx.get(f"{server.base_url}{path}", timeout=120, verify=False)  # noqa: S501 - plain HTTP


def refused(server: Server, reason: str) -> float:
    """Return the values of the metric."""
    line = f'pgo_collector_connections_refused_total{{reason="{reason}"}} '
    (found,) = (text for text in server.client.get("/metrics").text.splitlines() if text.startswith(line))
    return float(found.removeprefix(line))


@pytest.mark.parametrize(
    ("flooded", "reason", "status"),
    [
        ((HEAD, b"X-Line: value\r\n"), "headers", 431),
        ((HEAD + b"X-Endless: ", b"x"), "headers", 431),
        ((b"GET /healthz?", b"x"), "url_bytes", 414),
    ],
    ids=["lines", "an endless header", "an endless URL"],
)
def test_a_head_without_an_end_costs_little(
    server: Server, flooded: tuple[bytes, bytes], reason: str, status: int
) -> None:
    begin, more = flooded
    count, before = refused(server, reason), memory(server, "VmHWM")
    with connect(server) as connection:
        connection.sendall(begin)
        flood(connection, more, 100 * MIB)
        with suppress(OSError):
            assert statuses(connection.recv(1000)) == [status]
    assert memory(server, "VmHWM") - before < 8 * MIB
    assert refused(server, reason) == count + 1


@pytest.mark.parametrize(
    ("request_", "status", "setting"),
    [
        (HEAD + b"X: y\r\n" * 100 + b"\r\n", 431, "more than 100 header fields"),
        (HEAD + b"X: " + b"y" * 66_000 + b"\r\n\r\n", 431, "larger than 65,536 bytes"),
        (HEAD + b"X-Long: " + b"y" * 8187 + b"\r\n\r\n", 431, "x-long has 8,193 bytes"),
        (HEAD + b"X-Long: y" + b"\r\n y" * 90 + b"y" * 8100 + b"\r\n\r\n", 431, "x-long"),
        (HEAD + b"X: " + b"y" * 66_000, 431, "larger than 65,536 bytes"),
        (b"HEAD /healthz?" + b"x" * 16_400 + b" HTTP/1.1\r\nHost: collector\r\n\r\n", 414, ""),
        (
            b"GET /healthz?" + b"x" * 16_400 + b" HTTP/1.1\r\nHost: collector\r\n\r\n",
            414,
            "longer than 16,384 bytes",
        ),
        (b"GET /healthz?" + b"x" * 66_000, 414, "longer than 16,384 bytes"),
    ],
    ids=[
        "headers",
        "all headers",
        "one header",
        "a header in lines",
        "a header without an end",
        "HEAD",
        "a URL",
        "a URL without an end",
    ],
)
def test_a_head_that_is_too_large_is_refused_by_a_setting(
    server: Server, request_: bytes, status: int, setting: str
) -> None:
    with connect(server) as connection:
        connection.sendall(request_)
        answer = received(connection)
    assert statuses(answer) == [status]
    assert b"connection: close" in answer
    top, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in top
    assert setting.encode() in body
    assert bool(body) == bool(setting)


def test_a_head_just_within_the_bounds_is_taken(server: Server) -> None:
    request = b"GET /healthz?" + b"x" * 16_000 + b" HTTP/1.1\r\nHost: collector\r\nConnection: close\r\n"
    request += b"X: y\r\n" * 90 + (b"Y: " + b"y" * 8191 + b"\r\n") * 7 + b"\r\n"
    with connect(server) as connection:
        connection.sendall(request)
        assert statuses(received(connection)) == [200]


def test_a_head_is_waited_for_so_long_and_the_next_request_too(hasty: Server) -> None:
    with connect(hasty) as half, connect(hasty) as silent, connect(hasty) as idle:
        half.sendall(HEAD)
        idle.sendall(HEAD + b"\r\n")
        answer = received(half)
        assert statuses(answer) == [408]
        assert b"PGOF_HEAD_TIMEOUT" in answer
        assert received(silent) == b""
        assert statuses(received(idle)) == [200]


def test_unfinished_heads_share_a_bound_on_memory(tmp_path: Path) -> None:
    settings = {"PGOF_BODY_MEMORY_BYTES": str(4 * MIB), "PGOF_METRICS_OPEN": "true"}
    with Server(tmp_path / "home", settings) as server:
        assert server.submit(profile_of("a")).status_code == 204
        before = memory(server, "VmHWM")
        with crowd(server, 800, HEAD + (b"X: " + b"x" * 8000 + b"\r\n") * 7 + b"Y: y") as connections:
            answer = received(connections[0])
            assert statuses(answer) == [503]
            assert b"PGOF_BODY_MEMORY_BYTES" in answer
            assert get(server, "/healthz").status_code == 200
            assert refused(server, "heads") > 700
            connections[-1].sendall(b"\r\nConnection: close\r\n\r\n")
            assert statuses(received(connections[-1])) == [200]
        assert memory(server, "VmHWM") - before < 12 * MIB


def test_whole_heads_are_answered_however_many_wait_to_be_parsed(tmp_path: Path) -> None:
    """The bound of unfinished heads isn't theirs, though the turn of the loop ends before most of them."""
    with Server(tmp_path / "home", {"PGOF_BODY_MEMORY_BYTES": str(MIB)}) as server:
        whole = HEAD + (b"X: " + b"x" * 500 + b"\r\n") * 90 + b"Connection: close\r\n\r\n"
        with crowd(server, 400, whole) as connections:
            assert {tuple(statuses(received(connection))) for connection in connections} == {(200,)}


def test_requests_that_come_at_once_wait_unread(server: Server) -> None:
    before = memory(server, "VmHWM")
    request = head("POST", "/v1/submit", "wrong", "Content-Length: 0")
    with connect(server) as connection:
        connection.settimeout(1)
        flood(connection, request, 100 * MIB)
    assert memory(server, "VmHWM") - before < 16 * MIB


def test_half_sent_requests_make_way_for_others(tmp_path: Path) -> None:
    with LimitedServer(tmp_path / "home", DESCRIPTORS) as server, crowd(server, CROWD, HEAD):
        for number in range(10):
            with httpx.Client(base_url=server.base_url, timeout=120, verify=False) as client:  # noqa: S501
                assert client.get("/healthz").status_code == 200
                authorization = {"Authorization": f"Bearer {server.submit_key}"}
                answer = client.post("/v1/submit", content=profile_of(f"{number}"), headers=authorization)
                assert answer.status_code == 204
        assert server.events("requests refused")
        assert len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())) < DESCRIPTORS


def test_idle_connections_make_way_first(hasty: Server) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(hasty)) for _ in range(MOST)]
        for connection in connections[1:]:
            connection.sendall(head("POST", "/v1/submit", hasty.submit_key, "Content-Length: 100"))
        connections[0].sendall(HEAD + b"\r\n")
        assert statuses(connections[0].recv(1000)) == [200]
        assert hasty.submit(profile_of("a")).status_code == 204
        assert received(connections[0]) in {b"", b"OK"}


def test_health_checks_are_answered_when_every_connection_is_in_use(tmp_path: Path) -> None:
    with ExitStack() as stack:
        # A request of a busy machine may take seconds, and the senders are to be open after each.
        server = stack.enter_context(Server(tmp_path / "home", waiting(5)))
        senders = [stack.enter_context(connect(server)) for _ in range(MOST)]
        for sender in senders:
            sender.sendall(head("POST", "/v1/submit", server.submit_key, "Content-Length: 1000"))

        def ask(path: str) -> httpx.Response:
            for sender in senders:
                sender.sendall(b"x")  # or the server would close them as stuck
            return get(server, path)

        wait_until(lambda: ask("/v1/merge").status_code == 503)
        answer = ask("/v1/merge")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert "PGOF_MAX_CONNECTIONS" in answer.json()["detail"]
        assert ask("/healthz").status_code == 200
        assert ask("/readyz").status_code == 200
        with crowd(server, 100, b""):  # none of them is a health check
            assert ask("/healthz").status_code == 200
        # A client that sends nothing for seconds is closed in the end.
        wait_until(lambda: get(server, "/v1/merge").status_code == 403)


def test_answers_that_nobody_reads_and_the_rest_of_refused_bodies_are_given_up(hasty: Server) -> None:
    """Neither is waited for without end; both waits take seconds, and so run beside each other."""
    assert hasty.submit(large_profile("large")).status_code == 204
    with connect(hasty, receive_buffer=4096) as reader, connect(hasty) as sender:
        reader.sendall(head("GET", "/v1/merge", hasty.merge_key))
        sender.sendall(head("POST", "/v1/submit", "wrong", "Content-Length: 100"))
        line = hasty.wait_for_log("requests refused")
        assert line["reasons"] == {"answer_timeout": 1}
        assert hasty.submit(profile_of("a")).status_code == 204
        assert statuses(received(sender)) == [403]


def test_one_address_has_so_many_connections(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with (
        Server(home, {"PGOF_MAX_CONNECTIONS_PER_ADDRESS": "3"}) as server,
        crowd(server, 4, b"") as connections,
    ):
        answer = received(connections[3])
        assert statuses(answer) == [503]
        assert b"PGOF_MAX_CONNECTIONS_PER_ADDRESS" in answer
        connections[0].sendall(HEAD + b"\r\n")
        assert statuses(connections[0].recv(1000)) == [200]


def test_stalled_bodies_share_a_bound_on_memory(tmp_path: Path) -> None:
    piece, pieces, count = bytes(20 << 10), 25, 100
    length = f"Content-Length: {len(piece) * pieces + 1}"
    with Server(tmp_path / "home", {"PGOF_BODY_MEMORY_BYTES": str(MIB)}) as server:
        assert server.submit(profile_of("a")).status_code == 204
        before = memory(server, "VmHWM")
        request = head("POST", "/v1/submit", server.submit_key, length)
        with crowd(server, count, request) as connections:
            for _ in range(pieces):
                for connection in connections:
                    connection.sendall(piece)
                assert server.client.get("/healthz").status_code == 200
            incoming = server.data / "incoming"
            wait_until(lambda: len(list(incoming.iterdir())) > count // 2)
            assert memory(server, "VmHWM") - before < 24 * MIB
            for connection in connections:
                connection.sendall(b"x")
            assert {connection.recv(10) for connection in connections} == {b"HTTP/1.1 4"}
        wait_until(lambda: not list(incoming.iterdir()))


def test_arriving_bodies_share_a_bound_on_disk(tmp_path: Path) -> None:
    body = bytes(700 << 10)
    with Server(tmp_path / "home", {"PGOF_INCOMING_MEGABYTES": "1"}) as server:

        def submit(length: int) -> bytes:
            lines = f"Content-Length: {length}", "Connection: close"
            return head("POST", "/v1/submit", server.submit_key, *lines)

        incoming = server.data / "incoming"
        with crowd(server, 1, submit(len(body) + 1)) as (stalled,):
            stalled.sendall(body)
            wait_until(lambda: any(path.stat().st_size > len(body) // 2 for path in incoming.iterdir()))
            with crowd(server, 1, submit(len(body))) as (refused,):
                refused.sendall(body)
                answer = received(refused)
                assert statuses(answer) == [503]
                assert b"PGOF_INCOMING_MEGABYTES" in answer
                assert b"retry-after: 5" in answer.lower()
            assert server.submit(profile_of("a")).status_code == 204
        wait_until(lambda: not list(incoming.iterdir()))
        with crowd(server, 1, submit(len(body))) as (next_,):
            next_.sendall(body)
            assert statuses(received(next_)) == [413]  # it is accepted, and has too many fields
