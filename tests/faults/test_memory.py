"""The memory of hostile bodies and of merges, summed over all processes of the server."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from pprof_merge import Limits, compress, inflate
from pprof_proto.profile_pb2 import Profile

from tests.collector.conftest import PROFILES
from tests.constants import DECODED_BYTES
from tests.faults.connections import chunk, connect, head
from tests.faults.stacks import EPOCH, SECOND, profile_of, tally
from tests.server import Server

MIB = 1 << 20
LIMIT = Limits().inflated_bytes
CHUNKED = "Transfer-Encoding: chunked"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server whose workers have done tasks."""
    with Server(tmp_path / "home") as server:
        for stack in "abcdef":
            assert server.submit(profile_of(stack)).status_code == 204
        assert server.merge().status_code == 200
        yield server


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """Return 256 MiB of zeros in a quarter of a MiB of gzip."""
    bomb = gzip.compress(bytes(256 * MIB), mtime=0)
    assert len(bomb) < 300_000
    return bomb


@pytest.fixture(scope="module")
def many() -> list[bytes]:
    """Return 300 real profiles of some 25 KB, each taken at another time."""
    parsed = [Profile.FromString(inflate(path.read_bytes())) for path in sorted(PROFILES.glob("apisvc-*"))]
    made = []
    for second in range(300):
        profile = parsed[second % len(parsed)]
        profile.time_nanos = EPOCH + second * SECOND
        made.append(compress(profile.SerializeToString()))
    return made


def memory(server: Server, field: str) -> int:
    """Return the sum of VmRSS (now) or VmHWM (at most) of the server's processes, in bytes."""
    total = 0
    for pid in (server.process.pid, *server.descendants()):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        total += next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))
    return total


def test_a_bomb_costs_the_limit_and_many_cost_no_more(server: Server, bomb: bytes) -> None:
    before = memory(server, "VmRSS")
    for _ in range(3):
        assert server.submit(bomb).status_code == 413
    assert memory(server, "VmHWM") - before < LIMIT + 64 * MIB
    early = memory(server, "VmHWM")
    for _ in range(12):
        assert server.submit(bomb).status_code == 413
    assert memory(server, "VmHWM") - early < 8 * MIB
    assert tally(server.merge().content) == dict.fromkeys("abcdef", 1)


def test_small_bombs_at_once_cost_no_more(server: Server) -> None:
    """They are small enough to be kept in memory, and are validated together."""
    bomb = gzip.compress(bytes(2 * LIMIT), mtime=0)
    assert len(bomb) < 64 << 10
    with ThreadPoolExecutor(32) as clients:
        answers = [*clients.map(server.submit, [bomb] * 32)]  # all workers have started now
        before = memory(server, "VmHWM")
        answers += clients.map(server.submit, [bomb] * 100)
    assert {answer.status_code for answer in answers} == {413}
    assert memory(server, "VmHWM") - before < 2 * LIMIT + 16 * MIB


def test_profefe_fault_3_a_merge_does_not_hold_its_inputs(server: Server, many: list[bytes]) -> None:
    """profefe takes 655 KB for each of these. What workers keep decoded is another bound."""
    server.environment[DECODED_BYTES] = "4_000_000"
    server.restart()

    def send(profiles: list[bytes]) -> None:
        for profile in profiles:
            assert server.submit(profile, query={"service": "many"}).status_code == 204
        assert server.merge(query={"service": "many"}).status_code == 200

    send(many[:100])
    before = memory(server, "VmHWM")
    send(many[100:])
    assert memory(server, "VmHWM") - before < 100_000 * (len(many) - 100)


def test_a_body_without_end_is_refused_while_it_is_sent(server: Server) -> None:
    before = memory(server, "VmRSS")
    sent = 0
    with connect(server) as connection:
        connection.sendall(head("POST", "/v1/submit", server.submit_key, CHUNKED))
        connection.setblocking(False)
        answer = b""
        part = chunk(os.urandom(64 << 10))
        while not answer:
            sent += len(part)
            assert sent < LIMIT + 16 * MIB
            connection.settimeout(120)
            try:
                connection.sendall(part)
                connection.settimeout(0)
                answer = connection.recv(1000)
            except BlockingIOError:
                continue
            except ConnectionError:
                break
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert sent > LIMIT
    assert memory(server, "VmHWM") - before < 32 * MIB
    assert not list((server.data / "incoming").iterdir())


def test_bodies_on_their_way_are_not_held_in_memory(server: Server) -> None:
    before = memory(server, "VmRSS")
    part = chunk(os.urandom(MIB))
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(server)) for _ in range(24)]
        for connection in connections:
            connection.sendall(head("POST", "/v1/submit", server.submit_key, CHUNKED))
        for _ in range(8):
            for connection in connections:
                connection.sendall(part)
        assert memory(server, "VmHWM") - before < 64 * MIB  # of 192 that were sent
        for connection in connections:
            connection.sendall(b"0\r\n\r\n")
        assert {connection.recv(12) for connection in connections} == {b"HTTP/1.1 400"}
    assert memory(server, "VmHWM") - before < 2 * LIMIT + 64 * MIB
    assert not list((server.data / "incoming").iterdir())
