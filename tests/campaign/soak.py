"""Soak: a long time of a fleet's life, shortened by settings; the collector's resources must not grow.

Services come, send for some seconds and never return. Each process has its own labels. Clients request
merges, pages, queries, releases and combines; profiles are rolled up and deleted within seconds. Some keys
are wrong, some bodies malformed, and some clients disconnect. After a warm-up, memory, descriptors, threads,
files, folders and the catalog must be flat: see `Trend`.
"""

from __future__ import annotations

import gzip
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event, Lock, Thread
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import pytest
from pgo_collector.settings import Settings

from tests.campaign.collector import Collector, Usage
from tests.campaign.fleet import Maker, Marked
from tests.campaign.load import Address, Answer, Client
from tests.campaign.report import Findings
from tests.faults.connections import head
from tests.faults.mounts import small_disk
from tests.faults.stacks import DAY, SECOND
from tests.server import Server

_CLIENTS: Final = 4
# How long a service sends, and how long its profiles stay after that.
_LIFE_SECONDS: Final = 4
_KEPT_SECONDS: Final = 8
_KEEP_DAYS: Final = 3
_SAMPLES: Final = 120
# The server's two caches keep the names of this many series; each takes this much memory under this load.
_CACHED_SERIES: Final = 1 << 14
_SERIES_KIB: Final = 3.0
_FORMATS: Final = ("pprof", "go", "folded", "speedscope", "json", "llvm")
SETTINGS: Final = {
    "PGOF_WORKERS": "2",
    "PGOF_ROWS_MEGABYTES": "16",
    "PGOF_UPKEEP_SECONDS": "0.5",
    "PGOF_ROLLUP_DAYS": "1",
    "PGOF_ROLLUP_LABELS": "version",
    "PGOF_KEEP_DAYS": f"{_KEEP_DAYS}",
    "PGOF_KEEP_COMBINED_DAYS": f"{_KEEP_DAYS}",
    "PGOF_KEEP_MEGABYTES": "0.5",
    "PGOF_KEEP_COMBINED_MEGABYTES": "1",
    "PGOF_RELEASE_CHECK_SECONDS": "0",
    "PGOF_RELEASES_KEPT": "3",
    "PGOF_MERGES_KEPT": "30",
    "PGOF_METRICS_OPEN": "true",
    "PGOF_SIGN_IN_ATTEMPTS": "inf",
}


class Trend(NamedTuple):
    """The change of a quantity in the second half of a run, as a straight line fitted to its samples.

    It is flat unless the line rises over that half by more than `allowed` and by more than three times the
    line's standard error. With the same `allowed`, a run of a minute shows large leaks, one of an hour small
    ones.
    """

    name: str
    unit: str
    mean: float
    per_thousand: float
    rise: float
    error: float
    allowed: float

    @classmethod
    def of(cls, name: str, unit: str, allowed: float, points: Sequence[tuple[int, float]]) -> Trend:
        """Fit a line to samples, each a number of operations and a value."""
        half = np.array(points[len(points) // 2 :], np.float64)
        operations, values = half[:, 0], half[:, 1]
        centred = operations - operations.mean()
        spread = float((centred**2).sum()) or 1.0
        slope = float((centred * values).sum()) / spread
        residuals = values - values.mean() - slope * centred
        error = float(np.sqrt((residuals**2).sum() / max(len(values) - 2, 1) / spread))
        length = float(np.ptp(operations))
        return cls(name, unit, float(values.mean()), 1000 * slope, length * slope, length * error, allowed)

    @property
    def is_flat(self) -> bool:
        """Return whether it doesn't grow, as far as the noise permits to tell."""
        return self.rise <= max(self.allowed, 3 * self.error)

    def __str__(self) -> str:
        return (
            f"{self.mean:,.1f} {self.unit}, {self.per_thousand:+,.3f} per 1,000 operations"
            f" (over the second half {self.rise:+,.1f}, noise {self.error:,.1f}, allowed {self.allowed:,.1f})"
        )


# SQLite writes over its log from 4 MiB on, later where a reader holds that up; so much of it isn't counted.
_USUAL_LOG = 8 << 20
# The sampled quantities: the unit, and the rise that is allowed.
_QUANTITIES: Final[Mapping[str, tuple[str, float]]] = {
    "memory of the server": ("MiB", 8),
    "memory of the workers": ("MiB", 16),
    "descriptors": ("open", 6),
    "threads": ("running", 4),
    "processes": ("running", 0.5),
    "files in blobs/": ("files", 200),
    "empty folders in blobs/": ("folders", 20),
    "files elsewhere": ("files", 40),
    "folders elsewhere": ("folders", 5),
    "catalog": ("KiB", 300),
}


def run(seed: int, seconds: float, scratch: Path) -> Findings:
    """Return the trends, and a fault for each that rises; the samples are in `scratch`."""
    findings = Findings()
    with ExitStack() as stack:
        try:
            home = stack.enter_context(small_disk(scratch / "disk", "600m"))
        except pytest.skip.Exception:
            home = scratch / "disk"
        collector = stack.enter_context(Collector(home / "home", known(SETTINGS)))
        soak = Soak(collector, seed, findings)
        soak.play(seconds)
    lines = [f"{operations} {usage}" for operations, usage in soak.samples]
    (scratch / "soak-samples.txt").write_text("\n".join(lines))
    for trend in soak.trends():
        findings.figure(trend.name, trend)
        if not trend.is_flat:
            findings.fault(f"{trend.name} grows: {trend}", f"--seed {seed}; {scratch / 'soak-samples.txt'}")
    for kind, times in sorted(soak.answers.items()):
        findings.figure(f"answers: {kind}", f"{times:,}")
    findings.figure("operations", f"{soak.operations:,} in {seconds:.0f} s")
    return findings


def known(settings: Mapping[str, str]) -> dict[str, str]:
    """Return those of the settings that this version of the collector has."""
    return {
        name: value
        for name, value in settings.items()
        if name.removeprefix("PGOF_").lower() in Settings.fields
    }


Action = Callable[["Visitor"], None]


@dataclass
class Soak:
    """The load on a collector, and samples of its resources."""

    collector: Collector
    seed: int
    findings: Findings
    actions: Sequence[tuple[float, Action]] = ()
    operations: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    samples: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    series: int = 0
    series_at: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lock = Lock()
        self.maker = Maker()
        self.address = Address()
        self.address.url = self.collector.base_url
        self.actions = self.actions or ACTIONS
        self._over = Event()
        self._number = 0
        self._told: set[str] = set()

    def play(self, seconds: float) -> None:
        """Play for `seconds`, taking samples."""
        with self._threads():
            begin = time.monotonic()
            for number in range(1, _SAMPLES + 1):
                until = begin + seconds * number / _SAMPLES
                if self._over.wait(max(until - time.monotonic(), 0)):
                    break
                self.samples.append((self.operations, quantities(self.collector)))
                self.series_at.append(self.series)
                self.collector.log.clear()  # or the campaign's own memory would grow

    def trends(self) -> Iterator[Trend]:
        """Yield the trend of each quantity."""
        for name, (unit, allowed) in _QUANTITIES.items():
            points = [(operations, usage[name]) for operations, usage in self.samples]
            caches = self._caches_may_grow() if name == "memory of the server" else 0
            yield Trend.of(name, unit, allowed + caches, points)

    def _caches_may_grow(self) -> float:
        """Return by how many MiB the caches of series may grow in the second half, until they are full."""
        half, end = (min(self.series_at[at], _CACHED_SERIES) for at in (len(self.series_at) // 2, -1))
        return (end - half) * _SERIES_KIB / 1024

    def new_number(self) -> int:
        """Return a new number for a profile."""
        with self.lock:
            self._number += 1
            return self._number

    def count(self, kind: str, answer: Answer) -> None:
        """Count an answer; one that says that the collector failed is a fault."""
        with self.lock:
            self.operations += 1
            self.answers[f"{kind}, {answer.status or 'none'}"] += 1
            failed = f"{kind} {answer.status}"
            is_new = (answer.status >= 500 or not answer.status) and failed not in self._told
            self._told.add(failed)
        if is_new:
            self.findings.fault(f"{kind} failed with {answer.status}: {answer.text}", f"--seed {self.seed}")

    @contextmanager
    def _threads(self) -> Iterator[None]:
        threads = [Thread(target=self._visit, args=(number,), daemon=True) for number in range(_CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join(60)

    def _visit(self, number: int) -> None:
        with Client(self.address, 60) as client:
            random = Random(f"{self.seed}/{number}")  # noqa: S311 - nothing secret
            visitor = Visitor(self, client, random, number)
            weights = [weight for weight, _ in self.actions]
            while not self._over.is_set():
                ((_, action),) = visitor.random.choices(self.actions, weights)
                action(visitor)


@dataclass
class Visitor:
    """A client; `service` is the short-lived one that it sends for now."""

    soak: Soak
    client: Client
    random: Random
    number: int
    cookie: str = ""

    @property
    def service(self) -> str:
        """Return the current service; its name changes every few seconds."""
        return f"svc-{self.number}-{int(time.monotonic() / _LIFE_SECONDS)}"

    def ask(
        self,
        kind: str,
        method: str,
        path: str,
        content: bytes = b"",
        key: str = Server.merge_key,
        **query: str,
    ) -> Answer:
        """Send a request and count its answer."""
        answer = self.client.ask(method, path, key, query, content)
        self.soak.count(kind, answer)
        return answer

    def submit(self, service: str, labels: str, taken: int, base: int = -1) -> None:
        """Send a new profile."""
        marked = Marked(self.soak.new_number(), service, "cpu", labels, taken, base)
        content = self.soak.maker.body(marked).content
        query = {"service": service, "labels": labels}
        self.ask("submit", "POST", "/v1/submit", content, Server.submit_key, **query)


def quantities(collector: Collector) -> dict[str, float]:
    """Return the collector's current resources, by the names in `_QUANTITIES`."""
    usage: Usage = collector.usage()
    files: Counter[str] = Counter()
    for top in collector.data.iterdir():
        place = "blobs/" if top.name == "blobs" else "elsewhere"
        if not top.is_dir():
            files[f"files {place}"] += 1
            continue
        for _, folders, names in os.walk(top):
            files[f"folders {place}"] += len(folders)
            files[f"files {place}"] += len(names)
            files[f"empty {place}"] += not (folders or names)
    catalog = 0
    for path in collector.data.glob("catalog.sqlite3*"):
        with suppress(FileNotFoundError):
            size = path.stat().st_size
            catalog += max(size - _USUAL_LOG, 0) if path.name.endswith("-wal") else size
    own = collector.own_megabytes(collector.process.pid)
    return {
        "memory of the server": own,
        "memory of the workers": usage.own - own,
        "descriptors": usage.descriptors,
        "threads": usage.threads,
        "processes": usage.processes,
        "files in blobs/": files["files blobs/"],
        "empty folders in blobs/": files["empty blobs/"],
        "files elsewhere": files["files elsewhere"],
        "folders elsewhere": files["folders elsewhere"],
        "catalog": catalog / 1024,
    }


# Actions of the clients.


def submit_of_a_short_life(visitor: Visitor) -> None:
    """Submit for a process with labels of its own, so old that it is rolled up at once and deleted soon."""
    labels = f"a={secrets.token_hex(20)},host=h{visitor.random.randrange(5)},region=eu,version=1"
    taken = time.time_ns() - _KEEP_DAYS * DAY + _KEPT_SECONDS * SECOND
    with visitor.soak.lock:
        visitor.soak.series += 1
    visitor.submit(visitor.service, labels, taken)


def submit_of_a_steady_service(visitor: Visitor) -> None:
    """Submit a real profile; the oldest ones are deleted for lack of space."""
    labels = f"instance=i{visitor.random.randrange(20)},version={visitor.random.randrange(3)}"
    base = visitor.random.randrange(visitor.soak.maker.bases)
    visitor.submit("steady", labels, time.time_ns(), base)


def merge(visitor: Visitor) -> None:
    service = visitor.random.choice(("steady", visitor.service))
    visitor.ask("merge", "GET", "/v1/merge", service=service, format=visitor.random.choice(_FORMATS))


def merge_of_some(visitor: Visitor) -> None:
    labels = visitor.random.choice(("version=1", "version!=1", "instance=i1|i2"))
    visitor.ask("merge", "GET", "/v1/merge", service="steady", labels=labels, last="1h")


def combine(visitor: Visitor) -> None:
    service = visitor.random.choice(("steady", visitor.service))
    visitor.ask("combine", "POST", "/v1/merge", service=service, and_combine="true")


def query(visitor: Visitor) -> None:
    path, query = visitor.random.choice(
        (
            ("/v1/top", {"by": "function"}),
            ("/v1/top", {"by": "package", "service": "*"}),
            ("/v1/series", {"package": "runtime"}),
            ("/v1/diff", {"base_labels": "version=1"}),
            ("/v1/profiles", {"limit": "50"}),
            ("/v1/report", {}),
            ("/v1/services", {}),
            ("/metrics", {}),
            ("/readyz", {}),
            ("/v1/release", {}),
            ("/v1/releases", {}),
        )
    )
    named = {} if path in {"/v1/services", "/metrics", "/readyz"} else {"service": "steady", **query}
    visitor.ask("query", "GET", path, b"", Server.merge_key, **named)


def release(visitor: Visitor) -> None:
    visitor.ask("release", "POST", "/v1/releases", service="steady")


def page(visitor: Visitor) -> None:
    """Request a page with a session; sign in again now and then."""
    if not visitor.cookie or visitor.random.random() < 0.1:
        visitor.cookie = visitor.client.sign_in(Server.merge_key)
    path = visitor.random.choice(("", "/top", "/diff", "/build"))
    answer = visitor.client.page(f"/ui/services/steady{path}", visitor.cookie)
    visitor.soak.count("page", answer)


def bad_key(visitor: Visitor) -> None:
    visitor.ask("bad key", "GET", "/v1/merge", key=secrets.token_hex(16), service="steady")
    visitor.client.sign_in(secrets.token_hex(16))


def malformed_body(visitor: Visitor) -> None:
    content = visitor.random.choice(
        (b"not a profile", gzip.compress(secrets.token_bytes(1000)), b"\x1f\x8b" + bytes(50), b"")
    )
    visitor.ask("malformed body", "POST", "/v1/submit", content, Server.submit_key, service=visitor.service)


def go_away(visitor: Visitor) -> None:
    """Disconnect in the middle of a body, or of an answer."""
    url = urlsplit(visitor.soak.address.url or "")
    assert url.port is not None
    submit = head("POST", "/v1/submit", Server.submit_key, "Content-Length: 90000")
    ask = head("GET", "/v1/merge?service=steady", Server.merge_key)
    with suppress(OSError), socket.create_connection(("127.0.0.1", url.port), 10) as connection:
        if visitor.random.random() < 0.5:
            connection.sendall(submit + bytes(visitor.random.randrange(80_000)))
        else:
            connection.sendall(ask)
            time.sleep(visitor.random.uniform(0, 0.05))
    with visitor.soak.lock:
        visitor.soak.operations += 1


ACTIONS: Final[Sequence[tuple[float, Action]]] = (
    (60, submit_of_a_short_life),
    (6, submit_of_a_steady_service),
    (5, merge),
    (2, merge_of_some),
    (1, combine),
    (6, query),
    (0.5, release),
    (2, page),
    (4, bad_key),
    (6, malformed_body),
    (6, go_away),
)
