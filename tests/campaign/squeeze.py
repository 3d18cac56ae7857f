"""Squeeze: attacks on a collector whose processes have 512 MiB together.

Meanwhile a well-behaved client submits every 100 ms. The server has to survive, and to serve that client
again within seconds.
"""

from __future__ import annotations

import gzip
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import httpx
import pytest
from pprof_proto.profile_pb2 import Profile

from tests.campaign.collector import Collector
from tests.campaign.fleet import Ledger, Maker, Marked
from tests.campaign.load import Address, Calm, Client, Load, Probe
from tests.campaign.report import Findings
from tests.campaign.soak import known
from tests.control_group import ControlGroup, NoControlGroup, control_group
from tests.faults.connections import connect, head
from tests.faults.mounts import small_disk
from tests.server import COMMAND, Process, Server, bearer

_MIB: Final = 1 << 20
LIMIT_BYTES: Final = 512 * _MIB
# A well-behaved client's submits may fail for at most this long.
GAP_SECONDS: Final = 5.0
_WELL_SECONDS: Final = 30.0
# How long an attacker waits for an answer, or keeps a connection open.
_HELD_SECONDS: Final = 6.0
_OWNER: Final = ("probe", "cpu")
# The settings that docs/capacity.md recommends for such a small machine.
SETTINGS: Final = {
    "PGOF_WORKERS": "2",
    "PGOF_ROWS_MEGABYTES": "64",
    "PGOF_MAX_OUTPUT_BYTES": f"{24 * _MIB}",
    "PGOF_BODY_MEMORY_BYTES": f"{16 * _MIB}",
    "PGOF_MIN_FREE_MEGABYTES": "8",
}
_FORMATS: Final = ("folded", "speedscope", "json", "llvm", "go", "pprof")


def run(seed: int, seconds: float, scratch: Path) -> Findings:
    """Return the longest time without a success in each attack, and which processes died."""
    findings = Findings()
    with ExitStack() as stack:
        try:
            group = stack.enter_context(control_group(LIMIT_BYTES))
        except NoControlGroup as reason:
            findings.figure("skipped", reason)
            return findings
        squeeze = stack.enter_context(squeezed(seed, scratch, group, findings))
        squeeze.play(ATTACKS, seconds)
    return findings


class GroupedCollector(Collector):
    """A collector in a group, with the usual soft limit on descriptors."""

    group: ControlGroup

    def _spawn(self, *arguments: str) -> Process:
        limited = ["sh", "-c", 'ulimit -Sn 1024 && exec "$0" "$@"', COMMAND, *arguments]
        return subprocess.Popen(
            self.group.joined(*limited), stderr=subprocess.PIPE, env=self.environment, start_new_session=True
        )


class Attack(NamedTuple):
    """An attack. With `fails_all` every submit may fail during it, and only the time afterwards counts."""

    name: str
    play: Callable[[Squeeze], None]
    fails_all: bool = False


@contextmanager
def squeezed(seed: int, scratch: Path, group: ControlGroup, findings: Findings) -> Iterator[Squeeze]:
    """Run a collector in the group, with a well-behaved client."""
    with ExitStack() as stack:
        _allow_descriptors()
        ballast = None
        try:
            # A tmpfs counts as memory of the group, and has room for the stalled bodies.
            home = stack.enter_context(small_disk(scratch / "disk", "240m"))
            ballast = home / "ballast"
        except pytest.skip.Exception:
            home = scratch / "disk"
        collector = GroupedCollector(home / "home", known(SETTINGS))
        collector.group = group
        stack.callback(collector.kill)
        collector.start()
        random = Random(seed)  # noqa: S311 - nothing secret
        squeeze = Squeeze(collector, random, findings, f"--seed {seed}", ballast)
        squeeze.address.url = collector.base_url
        load = Load(
            squeeze.address, Ledger(0), Maker(), Calm(), squeeze.fault, _probed, (), seed, senders=0, askers=0
        )
        squeeze.probe = stack.enter_context(Probe(stack.enter_context(load), _OWNER))
        squeeze.load = load
        yield squeeze


@dataclass
class Squeeze:
    """The attacked collector, and its well-behaved client."""

    collector: GroupedCollector
    random: Random
    findings: Findings
    place: str
    ballast: Path | None
    address: Address = field(default_factory=Address)
    longest: dict[str, float] = field(default_factory=dict)
    attack: str = "start"
    gap_seconds: float = GAP_SECONDS
    deaths: int = 0

    def __post_init__(self) -> None:
        self.probe: Probe
        self.load: Load

    def play(self, attacks: Sequence[Attack], seconds: float) -> None:
        """Play the attacks in a random order by the seed, again and again for `seconds`."""
        end = time.monotonic() + seconds
        rounds = kills = 0
        if not self.probe.wait_for_success(_WELL_SECONDS):
            self.fault("not even without an attack a submit succeeds")
        while time.monotonic() < end and len(self.findings.faults) < 20:
            for attack in self.random.sample(attacks, len(attacks)):
                if time.monotonic() >= end:
                    break
                self._attacked(attack)
                rounds += 1
                new_kills = self.collector.group.oom_kills - kills
                if new_kills:
                    kills += new_kills
                    self.fault(f"the kernel ended {new_kills} processes for want of memory")
        self._note(rounds, kills)

    def fault(self, what: str) -> None:
        """Note a fault of the current attack."""
        last = "".join(f"\n      {line}" for line in self.collector.tail(6))
        self.findings.fault(what, f"{self.place}, attack {self.attack}; the log ends:{last}")

    def request(
        self, method: str, path: str, key: str = Server.merge_key, content: bytes = b"", **query: str
    ) -> int:
        """Send a request as an attacker, who doesn't wait long; return the status, 0 for no answer."""
        with suppress(httpx.TransportError):
            url = f"{self.address.url}{path}"
            with httpx.Client(timeout=_HELD_SECONDS, verify=False) as client:  # noqa: S501 (plain HTTP)
                return client.request(
                    method, url, content=content, params=query, headers=bearer(key)
                ).status_code
        return 0

    def _attacked(self, attack: Attack) -> None:
        self.attack = attack.name
        begin = time.monotonic()
        attack.play(self)
        if attack.fails_all:
            begin = time.monotonic()
        if not self.collector.is_running():
            self.deaths += 1
            self.fault("the server died")
            self._start_anew()
        elif not self.probe.wait_for_success(_WELL_SECONDS):
            self.fault(f"no submit has succeeded for {_WELL_SECONDS:.0f} s since the attack ended")
            self._start_anew()  # so that the next attack is on a working one
        gap = self.probe.gap(begin, time.monotonic())
        self.longest[attack.name] = max(gap, self.longest.get(attack.name, 0))
        if gap > self.gap_seconds:
            self.fault(f"a well-behaved client's submits failed for {gap:.1f} s")

    def _start_anew(self) -> None:
        self.collector.kill()
        self.collector.start()
        self.address.url = self.collector.base_url
        self.probe.wait_for_success(_WELL_SECONDS)

    def _note(self, rounds: int, kills: int) -> None:
        with Client(self.address) as client:
            self.attack = "none any more"
            if not self.load.check_merge(client, _OWNER):
                self.fault("the merge of what was submitted isn't answered")
        for name, gap in sorted(self.longest.items()):
            self.findings.figure(f"longest time without a success: {name}", f"{gap:.1f} s")
        acknowledged = len(self.load.ledger.acknowledged)
        self.findings.figure(
            "submits of the well-behaved client", f"{acknowledged:,}, slowest {self.probe.slowest:.1f} s"
        )
        self.findings.figure("attacks", rounds)
        self.findings.figure("deaths of the server", self.deaths)
        self.findings.figure("processes ended for want of memory", kills)
        peak = self.collector.group.peak_bytes / _MIB
        self.findings.figure(
            "most memory of all processes", f"{peak:,.0f} of {LIMIT_BYTES // _MIB} MiB, with files"
        )


def bomb(name_bytes: int, names: int, depth: int, stacks: int) -> bytes:
    """Return a profile of some KB, whose stacks are long and whose functions have long names."""
    profile = Profile(time_nanos=time.time_ns(), duration_nanos=1, period=1)
    profile.string_table.extend([b"", b"samples", b"count", b"cpu", b"nanoseconds"])
    profile.sample_type.add(type=1, unit=2)
    profile.sample_type.add(type=3, unit=4)
    profile.period_type.type, profile.period_type.unit = 3, 4
    for number in range(1, names + 1):
        profile.string_table.append(b"%d" % number + b"x" * name_bytes)
        profile.function.add(id=number, name=4 + number)
        profile.location.add(id=number, address=number).line.add(function_id=number, line=1)
    for stack in range(stacks):
        ids = [(stack + level // (1 + stack)) % names + 1 for level in range(depth)]
        profile.sample.add(location_id=[*ids, stack % names + 1], value=[1, 1 + stack])
    return gzip.compress(profile.SerializeToString(), mtime=0)


# The attacks.


def long_names(squeeze: Squeeze) -> None:
    """Submit small bodies whose merge is large as text: long names are in every line, many times."""
    shapes = [(4000, 3, 500, 200), (1 << 20, 2, 1000, 50), (60_000, 2, 1000, 50), (4000, 300, 100, 5000)]
    name_bytes, names, depth, stacks = squeeze.random.choice(shapes)
    service = f"bomb-{squeeze.random.randrange(1 << 30)}"
    squeeze.request(
        "POST", "/v1/submit", Server.submit_key, bomb(name_bytes, names, depth, stacks), service=service
    )
    with ThreadPoolExecutor(4) as clients:
        paths = [("/v1/merge", {"format": name}) for name in _FORMATS]
        paths += [("/v1/top", {"n": "1000"}), ("/v1/report", {}), ("/v1/release", {})]
        for path, query in paths:
            clients.submit(
                squeeze.request, "GET", path, Server.merge_key, b"", **{"service": service, **query}
            )


def inflated(squeeze: Squeeze) -> None:
    """Submit half a MiB that inflates to 512 MiB of zeros, and smaller ones, from several clients."""
    large = gzip.compress(bytes(64 * _MIB), mtime=0) * 8
    small = gzip.compress(bytes(16 * _MIB), mtime=0)
    with ThreadPoolExecutor(8) as clients:
        for content in [large, small, small] * 8:
            clients.submit(squeeze.request, "POST", "/v1/submit", Server.submit_key, content)


def header_flood(squeeze: Squeeze) -> None:
    """Send 100 MiB of headers on one connection, and an endless header on another."""
    for line in (b"X-Header: " + b"x" * 1000 + b"\r\n", b"x" * 1000):
        with suppress(OSError), connect(squeeze.collector) as connection:
            connection.settimeout(_HELD_SECONDS)
            connection.sendall(b"GET /v1/services HTTP/1.1\r\nHost: x\r\nX-Header: ")
            deadline, part = time.monotonic() + _HELD_SECONDS, line * 64
            for _ in range(100 * _MIB // len(part)):
                connection.sendall(part)
                if time.monotonic() > deadline:
                    break


def half_sent(squeeze: Squeeze) -> None:
    """Send 1,200 requests whose headers don't end."""
    with ExitStack() as stack:
        for _ in range(1200):
            with suppress(OSError):
                connection = socket.create_connection(_address(squeeze), 1)
                stack.enter_context(connection)
                connection.sendall(b"POST /v1/submit HTTP/1.1\r\nHost: x\r\n")
        time.sleep(_HELD_SECONDS)


def stalled_bodies(squeeze: Squeeze) -> None:
    """Send 500 KiB of each of 300 bodies, and then nothing."""
    start = head("POST", "/v1/submit", Server.submit_key, f"Content-Length: {600 << 10}")
    with ExitStack() as stack:
        for _ in range(300):
            with suppress(OSError):
                connection = socket.create_connection(_address(squeeze), 1)
                stack.enter_context(connection)
                connection.sendall(start + bytes(500 << 10))
        time.sleep(_HELD_SECONDS)


def unread_answers(squeeze: Squeeze) -> None:
    """Request merges and lists from 200 clients that don't read the answers."""
    with ExitStack() as stack:
        for _ in range(200):
            with suppress(OSError):
                connection = stack.enter_context(connect(squeeze.collector, 4096))
                connection.settimeout(1)
                path = f"/v1/merge?service=probe&format={squeeze.random.choice(_FORMATS)}"
                connection.sendall(head("GET", path, Server.merge_key))
        time.sleep(_HELD_SECONDS)


def hung_worker(squeeze: Squeeze) -> None:
    """Stop a worker for good: it has to be replaced."""
    for pid in squeeze.collector.workers()[:1]:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(2 * GAP_SECONDS)


def hung_workers(squeeze: Squeeze) -> None:
    """Stop all workers for good."""
    for pid in squeeze.collector.workers():
        os.kill(pid, signal.SIGSTOP)
    time.sleep(2 * GAP_SECONDS)


def full_disk(squeeze: Squeeze) -> None:
    """Fill the disk: nothing can be stored until there is space again; then it can at once."""
    if squeeze.ballast is not None:
        for size in (_MIB, 4096):
            with suppress(OSError), squeeze.ballast.open("ab", buffering=0) as file:
                while file.write(bytes(size)):
                    pass
        time.sleep(_HELD_SECONDS)
        squeeze.ballast.unlink()


ATTACKS: Final = (
    Attack("long names in long stacks, in every format", long_names),
    Attack("bodies that inflate", inflated),
    Attack("headers without end", header_flood),
    Attack("1,200 half-sent requests", half_sent),
    Attack("300 stalled bodies", stalled_bodies),
    Attack("200 answers that nobody reads", unread_answers),
    Attack("a worker hangs", hung_worker),
    Attack("all workers hang", hung_workers),
    Attack("full disk, after it", full_disk, fails_all=True),
)


def _address(squeeze: Squeeze) -> tuple[str, int]:
    host, _, port = squeeze.collector.base_url.removeprefix("http://").partition(":")
    return host, int(port)


def _probed(_: Random, number: int) -> Marked:
    return Marked(number, *_OWNER, "", time.time_ns())


def _allow_descriptors() -> None:
    """Raise this process's limit on descriptors for the attackers' connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
