"""Floods: what clients without a key, or with stalled bodies, cost the server and other clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.bench.measure import progress
from tests.bench.report import Section, seconds, table
from tests.bench.rig import Rig
from tests.bench.serving import repeated
from tests.faults.connections import LimitedServer, connect, crowd, flood, head
from tests.faults.stacks import profile_of
from tests.server import Server

TITLE = "Floods"
_MIB = 1 << 20
_FLOOD_BYTES = 100 * _MIB
_HALF_SENT = 1200
_DESCRIPTORS = 1024
_STALLED = 300
_STALLED_BYTES = 500 << 10
_SIGN_INS = 300
_HEAD = b"GET /healthz HTTP/1.1\r\nHost: collector\r\n"
# How long a crowd keeps its connections while others are served.
_STAY_SECONDS = 3.0
_REST_SECONDS = 3.0
_PAUSE = 0.05
_TIMEOUT = 30.0

Attack = Callable[[Server, int], None]


class Cost(NamedTuple):
    """The cost of an attack.

    It has the memory that the server process grew by at most, and that it kept afterwards (MiB); the longest
    time that /healthz took on a new connection (s); and how many submits failed, of how many.
    """

    grown: float
    left: float
    longest: float
    failed: int
    submits: int


def sections(rig: Rig) -> list[Section]:
    """Measure each attack on a server of its own."""
    rows: list[list[str]] = []
    for name, attack in ATTACKS.items():
        cost = cost_of(rig.scratch / f"floods-{len(rows)}", attack, rig.scale)
        row = [
            name,
            f"{cost.grown:.0f} MiB",
            f"{cost.left:.0f} MiB",
            seconds(cost.longest),
            f"{cost.failed} of {cost.submits}",
        ]
        progress(" | ".join(row))
        rows.append(row)
    head_ = ("attack", "memory at most", "left", "longest `/healthz`", "failed submits")
    return [
        Section(
            TITLE,
            f"""{table(head_, rows)}

Each attack runs on a server of its own with {_DESCRIPTORS:,} file descriptors. Memory is how much the
server process grew, and how much of that is left {_REST_SECONDS:g} s after the attack. Meanwhile another
client asks for `/healthz` and submits, each time on a new connection.""",
        )
    ]


def cost_of(home: Path, attack: Attack, scale: int = 1) -> Cost:
    """Measure an attack."""
    with LimitedServer(home, _DESCRIPTORS) as server:
        for number in range(20):
            server.submit(profile_of(f"before {number}"))
        before = _memory(server, "VmRSS")
        with _client(server) as asked:
            attack(server, scale)
        time.sleep(_REST_SECONDS)
        return Cost(
            (_memory(server, "VmHWM") - before) / _MIB,
            max(0, _memory(server, "VmRSS") - before) / _MIB,
            max(asked.seconds),
            asked.failed,
            asked.submits,
        )


class _Asked:
    """The measurements of a client that isn't part of the attack."""

    def __init__(self) -> None:
        self.seconds = [0.0]
        self.failed = 0
        self.submits = 0

    def ask(self, server: Server) -> None:
        """Request /healthz and submit a profile, on new connections."""
        with httpx.Client(base_url=server.base_url, timeout=_TIMEOUT, verify=False) as client:  # noqa: S501 - plain HTTP
            began = time.perf_counter()
            try:
                client.get("/healthz")
            except httpx.HTTPError:
                self.seconds.append(_TIMEOUT)
            else:
                self.seconds.append(time.perf_counter() - began)
            self.submits += 1
            key = {"Authorization": f"Bearer {server.submit_key}"}
            try:
                answer = client.post("/v1/submit", content=profile_of(f"{self.submits}"), headers=key)
                self.failed += answer.status_code != 204
            except httpx.HTTPError:
                self.failed += 1


@contextmanager
def _client(server: Server) -> Iterator[_Asked]:
    asked = _Asked()
    with repeated(partial(asked.ask, server), _PAUSE):
        yield asked


def _memory(server: Server, field: str) -> int:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))


def _header_lines(server: Server, scale: int) -> None:
    with connect(server) as connection:
        connection.sendall(_HEAD)
        flood(connection, b"X-Line: value\r\n", _FLOOD_BYTES // scale)


def _endless_header(server: Server, scale: int) -> None:
    with connect(server) as connection:
        connection.sendall(_HEAD + b"X: ")
        flood(connection, b"x", _FLOOD_BYTES // scale)


def _half_sent(server: Server, scale: int) -> None:
    with crowd(server, _HALF_SENT // scale, _HEAD):
        time.sleep(_STAY_SECONDS)


def _unread(server: Server, scale: int) -> None:
    with connect(server) as connection:
        connection.settimeout(_STAY_SECONDS)
        flood(connection, head("POST", "/v1/submit", "wrong", "Content-Length: 0"), _FLOOD_BYTES // scale)


def _stalled(server: Server, scale: int) -> None:
    request = head("POST", "/v1/submit", server.submit_key, f"Content-Length: {_STALLED_BYTES}")
    with crowd(server, _STALLED // scale, request + bytes(_STALLED_BYTES - 1)):
        time.sleep(_STAY_SECONDS)


def _sign_ins(server: Server, scale: int) -> None:
    for number in range(_SIGN_INS // scale):
        server.client.post("/ui/sign-in", data={"key": f"wrong {number}"})


ATTACKS: dict[str, Attack] = {
    f"{_FLOOD_BYTES // _MIB} MiB of header lines on one connection": _header_lines,
    f"one header of {_FLOOD_BYTES // _MIB} MiB": _endless_header,
    f"{_HALF_SENT:,} half-sent requests": _half_sent,
    f"{_FLOOD_BYTES // _MIB} MiB of requests at once, whose answers aren't read": _unread,
    f"{_STALLED} bodies of {_STALLED_BYTES >> 10} KiB that stall": _stalled,
    f"{_SIGN_INS} wrong sign-ins": _sign_ins,
}
