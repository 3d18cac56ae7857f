"""Wire: requests made from the OpenAPI description, raw and malformed ones, floods, and slow clients.

All of them go to one real server while other clients check its health. These are faults: an answer of 500 or
more other than 503; a request within another one's body that is answered; a server that ends, that is slow to
answer /healthz or a submit, or that takes more than `MOST_MEMORY`.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from itertools import cycle
from pathlib import Path
from random import Random
from typing import NamedTuple, Self
from urllib.parse import urlsplit

import httpx

from tests.campaign.report import Findings
from tests.campaign.wire_requests import SMUGGLED, Operation, Raw, asked, framed, malformed, operations
from tests.collector.visitor import Visitor
from tests.faults.stacks import profile_of
from tests.oracle.builder import seeded
from tests.server import Server, bearer

# The memory that the server process may take, without its workers.
MOST_MEMORY = 384 << 20
# `/healthz` and a submit may take this long on a busy machine.
SLOWEST_HEALTH = 5.0
SLOWEST_SUBMIT = 15.0
# A server may be busy, and may not support every encoding of bodies.
_FINE = {"501", "503"}
_PROBE_SECONDS = 0.5
_REQUEST_SECONDS = 60.0
_RAW_SECONDS = 0.3
# An error's detail may name "HTTP/1.1" too, without a status after it.
_STATUS_LINE = re.compile(rb"HTTP/1\.1 (?=\d{3} )")
_FLOOD_BYTES = 48 << 20
_FLOOD_SECONDS = 6.0
_FLOODERS = 4
_SLOW_CLIENTS = 300
_SLOW_SECONDS = 4.0
_STOP_SECONDS = 60.0


class Bounds(NamedTuple):
    """The bounds, in bytes and seconds, beyond which something is a fault."""

    memory: int = MOST_MEMORY
    health: float = SLOWEST_HEALTH
    submit: float = SLOWEST_SUBMIT


_BOUNDS = Bounds()


class Watch:
    """A client that checks the server's health all the time, and submits as a well-behaved client does.

    `doing` is the current attack, and `bytes_sent` everything needed to reproduce a fault.
    """

    def __init__(self, server: Server, bounds: Bounds, findings: Findings, scratch: Path) -> None:
        self.slowest_health = self.slowest_submit = 0.0
        self.most_memory = 0
        self.doing, self.bytes_sent = "", b""
        self._server, self._bounds, self._findings, self._scratch = server, bounds, findings, scratch
        self._until = threading.Event()
        self._told: set[str] = set()
        self._threads = [
            threading.Thread(target=self._loop, args=(look,)) for look in (self._health, self._submit)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._until.set()
        for thread in self._threads:
            thread.join()

    def fault(self, what: str) -> None:
        """Note a fault of the server during an attack; each fault only once."""
        text = f"{what}, during: {self.doing}"
        if text not in self._told:
            self._told.add(text)
            file = self._scratch / f"fault-{len(self._told)}"
            file.write_bytes(self.bytes_sent)
            self._findings.fault(text, file)

    def _loop(self, look: Callable[[], None]) -> None:
        while not self._until.wait(_PROBE_SECONDS):
            look()

    def _health(self) -> None:
        began = time.monotonic()
        try:
            url = f"{self._server.base_url}/healthz"
            answer = httpx.get(url, timeout=_REQUEST_SECONDS, verify=False)  # noqa: S501 - it is http
            if answer.status_code != 200:
                self.fault(f"/healthz answers {answer.status_code}")
        except httpx.HTTPError as error:
            self.fault(f"/healthz: {type(error).__name__}")
        took = time.monotonic() - began
        self.slowest_health = max(self.slowest_health, took)
        if took > self._bounds.health:
            self.fault(f"/healthz takes more than {self._bounds.health:g} s")
        memory = resident(self._server.process.pid)
        self.most_memory = max(self.most_memory, memory)
        if memory > self._bounds.memory:
            self.fault(f"the server takes more than {self._bounds.memory >> 20} MiB")

    def _submit(self) -> None:
        """Submit until the profile is stored, as clients do."""
        began, last = time.monotonic(), ""
        while not self._until.is_set():
            try:
                answer = httpx.post(
                    f"{self._server.base_url}/v1/submit",
                    params={"service": "well-behaved"},
                    content=profile_of("well", time_nanos=time.time_ns()),
                    headers=bearer(Server.submit_key),
                    timeout=_REQUEST_SECONDS,
                    verify=False,  # noqa: S501 - it is http
                )
                if answer.status_code == 204:
                    break
                last = str(answer.status_code)
            except httpx.HTTPError as error:
                last = type(error).__name__
            if time.monotonic() - began > self._bounds.submit:
                break
            time.sleep(0.1)
        took = time.monotonic() - began
        self.slowest_submit = max(self.slowest_submit, took)
        if took > self._bounds.submit:
            self.fault(f"a submit takes more than {self._bounds.submit:g} s ({last})")


def resident(pid: int) -> int:
    """Return the memory of a process in bytes; 0 if it doesn't exist."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
    return 0


class Attack:
    """An attack on a server. `answers` are the statuses of all answers."""

    def __init__(self, server: Server, random: Random, watch: Watch) -> None:
        self.answers: Counter[str] = Counter()
        self._n_smuggled = 0
        self._server, self._random, self._watch = server, random, watch
        description = server.client.get("/v1/openapi.json").json()
        self._operations = operations(description)
        self._visitor = Visitor(server)

    def from_the_description(self, count: int = 60) -> None:
        """Send requests made from the OpenAPI description."""
        for _ in range(count):
            self._ask(self._random.choice(self._operations))

    def _ask(self, operation: Operation) -> None:
        request = asked(operation, self._random)
        self._watch.doing = f"{operation.method} {operation.path}"
        text = f"{request.method} {request.target}\nkey: {request.key!r}\n\n"
        self._watch.bytes_sent = text.encode() + (request.body or b"")
        headers = bearer(request.key) if request.key else {}
        if request.target.startswith("/ui/services"):
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self._visitor.cookies.items())
        try:
            answer = self._server.client.request(
                request.method,
                request.target,
                headers=headers,
                content=request.body,
                timeout=_REQUEST_SECONDS,
            )
        except httpx.InvalidURL:  # the client refuses to send it
            return
        except httpx.HTTPError as error:
            self.answers[type(error).__name__] += 1
            return
        self.answers[str(answer.status_code)] += 1
        if answer.status_code >= 500 and answer.status_code != 503:
            self._watch.fault(f"{answer.status_code} {answer.text[:200]}")

    def malformed(self) -> None:
        """Send malformed HTTP."""
        self._send_all(malformed(self._random) for _ in range(15))

    def framed(self) -> None:
        """Send requests whose bodies look like requests; check that none is taken for one."""
        for _ in range(15):
            self._send_all([framed(self._random)])
            smuggled = [line for line in self._server.events("request") if SMUGGLED in str(line.get("path"))]
            if len(smuggled) > self._n_smuggled:
                self._n_smuggled = len(smuggled)
                self._watch.fault("what is in a body is taken for a request")

    def _send_all(self, requests: Iterable[Raw]) -> None:
        for request in requests:
            self._watch.doing = f"raw bytes, {request.what}"
            self._watch.bytes_sent = repr(request.pieces).encode()
            every = [answer[:3].decode(errors="replace") for answer in self._answers_to(request)]
            statuses = [status for status in every if status != "100"]
            self.answers.update(statuses)
            if any(status >= "500" and status not in _FINE for status in statuses):
                self._watch.fault(f"raw bytes are answered {statuses}")
            if len(statuses) > 1 and request.what != "malformed":
                self._watch.fault(f"one request has several answers: {statuses}")

    def _answers_to(self, request: Raw) -> list[bytes]:
        """Send a request; return all answers to it, from the status line on."""
        received = b""
        with suppress(OSError), self._connected() as connection:
            for piece in request.pieces:
                connection.sendall(piece)
                time.sleep(0.01 * (len(request.pieces) > 1))
            connection.settimeout(_RAW_SECONDS)
            while part := connection.recv(1 << 16):
                received += part
        return _STATUS_LINE.split(received)[1:]

    def header_flood(self) -> None:
        """Send endless headers on several connections."""
        line = (
            b"X-%d: " % self._random.randrange(100) + b"a" * self._random.choice((10, 1000, 8000)) + b"\r\n"
        )
        endless = self._random.randrange(2)
        self._watch.doing = "a flood of headers" if not endless else "a header without end"
        start = b"GET /v1/merge HTTP/1.1\r\nHost: collector\r\n" + (b"X: " if endless else b"")
        self._watch.bytes_sent = start + line
        self._flood(start, (b"a" * 65536) if endless else line * (65536 // len(line)))

    def body_flood(self) -> None:
        """Send endless bodies, with a key or without, on several connections."""
        key = self._random.choice((Server.submit_key, "wrong"))
        path = self._random.choice(("/v1/submit", "/v1/report", "/v1/merge", "/healthz", "/ui/sign-in"))
        self._watch.doing = f"a flood of bodies to {path} with the key {key!r}"
        start = f"POST {path} HTTP/1.1\r\nHost: collector\r\nAuthorization: Bearer {key}\r\n"
        chunk = b"10000\r\n" + bytes(65536) + b"\r\n"
        self._flood(f"{start}Transfer-Encoding: chunked\r\n\r\n".encode(), chunk)

    def _flood(self, start: bytes, more: bytes) -> None:
        flooders = [threading.Thread(target=self._flood_one, args=(start, more)) for _ in range(_FLOODERS)]
        for flooder in flooders:
            flooder.start()
        for flooder in flooders:
            flooder.join()

    def _flood_one(self, start: bytes, more: bytes) -> None:
        deadline, sent = time.monotonic() + _FLOOD_SECONDS, 0
        with suppress(OSError), self._connected() as connection:
            connection.settimeout(1)
            connection.sendall(start)
            while sent < _FLOOD_BYTES and time.monotonic() < deadline:
                connection.sendall(more)
                sent += len(more)

    def slow_clients(self) -> None:
        """Hold hundreds of connections with half a request each."""
        self._watch.doing = f"{_SLOW_CLIENTS} slow clients"
        head = f"POST /v1/submit HTTP/1.1\r\nHost: collector\r\nAuthorization: Bearer {Server.submit_key}\r\n"
        starts = (
            b"",
            b"GET /v1/merge HTT",
            head.encode(),
            f"{head}Content-Length: 600000\r\n\r\n".encode() + bytes(500_000),
            f"{head}Transfer-Encoding: chunked\r\n\r\n5".encode(),
        )
        with ExitStack() as stack:
            held = []
            for start, _ in zip(cycle(starts), range(_SLOW_CLIENTS), strict=False):
                with suppress(OSError):
                    connection = stack.enter_context(self._connected())
                    connection.settimeout(0.2)
                    held.append(connection)
                    connection.sendall(start)
            end = time.monotonic() + _SLOW_SECONDS
            while time.monotonic() < end:
                for connection in held:
                    with suppress(OSError):
                        connection.sendall(b"a")
                time.sleep(0.5)

    def _connected(self) -> socket.socket:
        address = urlsplit(self._server.base_url)
        return socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=10)


def run(seed: int, seconds: float, scratch: Path, bounds: Bounds = _BOUNDS) -> Findings:
    """Attack a server for `seconds`, in one way after another; see `report`."""
    findings, random = Findings(), seeded(seed)
    rounds: Counter[str] = Counter()
    environment = {
        "PGOF_METRICS_OPEN": "true",
        "PGOF_PROFEFE_OPEN": "true",
        "PGOF_MAX_COMPRESSED_BYTES": f"{1 << 20}",
    }
    with Server(scratch / "home", environment) as server:
        with Watch(server, bounds, findings, scratch) as watch:
            attack = Attack(server, random, watch)
            end = time.monotonic() + seconds
            ways = (
                attack.from_the_description,
                attack.framed,
                attack.malformed,
                attack.header_flood,
                attack.body_flood,
                attack.slow_clients,
            )
            for way in cycle(ways):
                if time.monotonic() >= end:
                    break
                way()
                rounds[way.__name__] += 1
                if not Path(f"/proc/{server.process.pid}/exe").exists() or not resident(server.process.pid):
                    watch.fault("the server has ended")
                    break
        if not findings.faults or resident(server.process.pid):
            _stop(server, findings)
        for line in server.log:
            if line["event"] in {"unexpected error", "not JSON"}:
                findings.fault(f"the log has {line['event']!r}", str(line)[:2000])
                break
        (scratch / "log").write_text("\n".join(map(str, server.log)))
    findings.figure("rounds", ", ".join(f"{name} {count}" for name, count in rounds.items()))
    findings.figure(
        "answers", ", ".join(f"{status}: {count}" for status, count in sorted(attack.answers.items()))
    )
    findings.figure("slowest /healthz", f"{watch.slowest_health:.2f} s")
    findings.figure("slowest submit", f"{watch.slowest_submit:.2f} s")
    findings.figure("most memory of the server's process", f"{watch.most_memory >> 20} MiB")
    return findings


def _stop(server: Server, findings: Findings) -> None:
    began = time.monotonic()
    code = server.stop()
    if code:
        findings.fault(f"the server ends with status {code}", "SIGTERM after all")
    if (took := time.monotonic() - began) > _STOP_SECONDS:
        findings.fault(f"the server takes {took:.0f} s to stop", "SIGTERM after all")
