"""The gain of a Go server: instances with loads of their own are scraped, and new builds get another load."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from threading import Event
from typing import NamedTuple, Protocol

from tests.bench import machine
from tests.bench.measure import progress
from tests.cpu_meter import CpuMeter
from tests.gains.costs import compared
from tests.gains.debian import needed
from tests.gains.go import PAGES, WORK, GoBuild, GoSource, documents, middle, samples_in
from tests.gains.page import NONE, OURS, Gain, Latency
from tests.gains.programs import ROOT
from tests.interop.listening import free_port, wait_until_answers
from tests.oracle.oracle import go_root
from tests.server import Server

_AGENT = str(Path(sys.executable).with_name("pgo-agent"))
_PROFILED_SECONDS = 15
_THOUSAND = 1000
_SHORT, _FILES = (1500, 9000), 8


class Answered(NamedTuple):
    """The answers to a load: how many, and how long they took."""

    requests: int
    latency: Latency


class GoServer(Protocol):
    """A server: its sources, the loads of the instances that are profiled, and the one that is measured.

    A load is words for what sends it. `target` has the keys of its table for `pgo-agent scrape`.
    """

    source: GoSource
    profiled: Sequence[Sequence[str]]
    measured: Sequence[str]
    how: str

    def prepare(self, folder: Path) -> None:
        """Make what servers and loads need in a folder. Raises FileNotFoundError if a program is missing."""

    def command(self, binary: Path, port: int) -> list[str]:
        """Return the command of an instance, which runs in an empty folder of its own."""

    def target(self, port: int) -> dict[str, str]:
        """Return the URL of its profiles, and the file with the certificate if it has one."""

    def answered(self, port: int, load: Sequence[str]) -> Answered:
        """Send a load for some seconds."""


class Pages(GoServer):
    """HTML of Markdown and code in templates, gzipped, over TLS, by `wrk`."""

    source = PAGES
    how = (
        "It renders Markdown and code into templates, gzips and encrypts. One instance is profiled with\n"
        "pages of these docs, one with sources of Go's `net/http`, one with the list of all files as HTML\n"
        "and JSON; other pages, other sources and the list are measured, by `wrk` with 8 connections."
    )

    def __init__(self, seconds: int = 2) -> None:
        self._seconds = seconds
        library = go_root() / "src"
        trained, measured = (_short(pages) for pages in documents())
        codes = [
            _short(str(file) for file in sorted((library / package).glob("*.go")))
            for package in ("net/http", "encoding/json")
        ]
        lists = ("/list", "/api")
        self._files = (*trained, *measured, *codes[0], *codes[1])
        self.profiled = (_paths(trained), _paths(codes[0]), lists)
        self.measured = (*_paths(measured), *_paths(codes[1]), *(4 * lists))

    def prepare(self, folder: Path) -> None:
        """Prepare as `GoServer` documents."""
        needed("wrk", "openssl")
        self._folder = folder
        asked = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        asked += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        asked += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
        subprocess.run(asked, check=True, capture_output=True)

    def command(self, binary: Path, port: int) -> list[str]:
        """Return as `GoServer` documents."""
        names = [str(self._folder / name) for name in ("certificate.pem", "key.pem")]
        return [str(binary), "serve", f"127.0.0.1:{port}", *names, *self._files]

    def target(self, port: int) -> dict[str, str]:
        """Return as `GoServer` documents."""
        certificate = str(self._folder / "certificate.pem")
        return {"url": f"https://127.0.0.1:{port}/debug/pprof", "ca_file": certificate}

    def answered(self, port: int, load: Sequence[str]) -> Answered:
        """Return as `GoServer` documents."""
        script = self._folder / f"{port}.lua"
        paths = ", ".join(json.dumps(path) for path in load)
        script.write_text(
            f"local paths, sent = {{ {paths} }}, 0\n"
            "function request()\n"
            "    sent = sent + 1\n"
            '    return wrk.format("GET", paths[sent % #paths + 1])\n'
            "end\n"
        )
        wrk = ["wrk", "--threads", "1", "--connections", "8", "--duration", f"{self._seconds}s", "--latency"]
        said = _said([*wrk, "--timeout", "60s", "--script", str(script), f"https://127.0.0.1:{port}"])
        assert "Non-2xx" not in said, said
        requests = re.search(r"(\d+) requests in", said)
        times = dict(re.findall(r"(50|99)%\s+(\S+)", said))
        assert requests is not None, said
        return Answered(int(requests[1]), Latency(milliseconds(times["50"]), milliseconds(times["99"])))


class Etcd(GoServer):
    """etcd alone, without waiting for its disk, by a client of ours."""

    source = GoSource(
        "etcd",
        "of Debian's golang-etcd-server-dev",
        ROOT,
        "go.etcd.io/etcd",
        debian=("golang-etcd-server-dev",),
    )
    profiled = (
        ("get=8", "range=2"),
        ("put=6", "txn=3", "delete=1"),
        ("lease=3", "get=5", "put=2"),
    )
    measured = ("get=10", "range=3", "put=4", "txn=2", "delete=1", "lease=1")
    how = (
        "One member, started with `--unsafe-no-fsync`, since disks differ more than builds. One instance\n"
        "is profiled with reads, one with writes and transactions, one with leases; a mix of all is\n"
        "measured, by a program of ours with etcd's client: 8 clients, and one that watches."
    )

    def __init__(self, requests: int = 8000) -> None:
        self._requests = requests

    def prepare(self, folder: Path) -> None:
        """Prepare as `GoServer` documents."""
        # Each instance's loads have the same draws in the same order.
        self._loads = Counter[int]()
        client = GoSource("etcdload", "", WORK / "etcdload", ".", debian=self.source.debian)
        self._client = client.build(folder / "etcdload").binary

    def command(self, binary: Path, port: int) -> list[str]:
        """Return as `GoServer` documents."""
        own, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
        flags = {
            "data-dir": "data",
            "listen-client-urls": own,
            "advertise-client-urls": own,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
            "log-level": "error",
        }
        return [str(binary), "--enable-pprof", "--unsafe-no-fsync", *(f"--{k}={v}" for k, v in flags.items())]

    def target(self, port: int) -> dict[str, str]:
        """Return as `GoServer` documents."""
        return {"url": f"http://127.0.0.1:{port}/debug/pprof"}

    def answered(self, port: int, load: Sequence[str]) -> Answered:
        """Return as `GoServer` documents."""
        self._loads[port] += 1
        words = [f"127.0.0.1:{port}", str(self._requests), "8", str(self._loads[port]), *load]
        said = json.loads(_said([str(self._client), *words]))
        return Answered(said["requests"], Latency(said["p50"], said["p99"]))


SERVERS: Mapping[str, Callable[[], GoServer]] = {"etcd": Etcd, "pages": Pages}


class _Instance(NamedTuple):
    port: int
    pid: int


def server_gain(server: GoServer, folder: Path, profiles: int, rounds: int) -> Gain:
    """Build a server in an empty folder, with each of several profiles, and return what its builds cost."""
    stamp, source = machine.stamp(), server.source
    progress(f"{source.name}: getting its sources and building it without a profile")
    source.unpack()
    plain = source.build(folder / "none")
    server.prepare(folder)
    samples, guided = list[int](), list[GoBuild]()
    for number in range(1, profiles + 1):
        title = f"{source.name}, profile {number} of {profiles}"
        progress(f"{title}: profiling {len(server.profiled)} instances for {_PROFILED_SECONDS} s")
        merged, guide = profile_servers(server, plain.binary, folder / str(number))
        samples.append(samples_in(merged.read_bytes()))
        progress(f"{title}: {samples[-1]:,} samples; building")
        guided.append(source.build(folder / f"ours-{number}", guide))
    seconds, latencies = in_turns(server, [plain, *guided], rounds, folder)
    how = (
        f"{source.name}, {source.version}, built with `-pgo=off` and `-pgo=default.pgo`. {server.how}\n"
        f"{profiles} profiles were taken by `pgo-agent scrape`, {_PROFILED_SECONDS} s of each instance:\n"
        f"{min(samples):,} to {max(samples):,} samples. CPU times are of the server for {_THOUSAND:,}\n"
        f"requests, the kernel's part included, of the builds with all profiles, in {rounds} rounds. The\n"
        f"times of answers are those of clients that keep the machine busy.\n\n{stamp}"
    )
    return Gain(
        source.name,
        source.compiler,
        f'make gains ARGS="{source.name}"',
        {},
        compared(seconds),
        how,
        {NONE: plain.cost, OURS: middle(guided)},
        latencies,
    )


def profile_servers(
    server: GoServer, binary: Path, folder: Path, seconds: int = _PROFILED_SECONDS
) -> tuple[Path, Path]:
    """Scrape instances under load, and return the collector's merge and release, as files in a new folder."""
    folder.mkdir()
    merged, guide, targets = folder / "merged.pb.gz", folder / "default.pgo", folder / "targets.toml"
    service, done = server.source.name, Event()
    with ExitStack() as stack:
        collector = stack.enter_context(Server(folder / "collector"))
        collector.query = {"service": service}
        running = [
            stack.enter_context(_running(server, binary, folder / f"instance-{number}"))
            for number in range(len(server.profiled))
        ]
        tables = [{"service": service, **server.target(instance.port)} for instance in running]
        targets.write_text("".join(map(_table, tables, range(len(tables)))))

        def loaded(instance: _Instance, load: Sequence[str]) -> None:
            while not done.is_set():
                server.answered(instance.port, load)

        pool = stack.enter_context(ThreadPoolExecutor(len(running)))
        loads = [pool.submit(loaded, *each) for each in zip(running, server.profiled, strict=True)]
        scrape = [_AGENT, "scrape", "--once", "--seconds", str(seconds), "--targets", str(targets)]
        try:
            _said([*scrape, "--url", collector.base_url, "--key-file", str(collector.submit_keys)])
        finally:
            done.set()
        for load in loads:
            load.result()
        merged.write_bytes(collector.merge().raise_for_status().content)
        guide.write_bytes(collector.release().raise_for_status().content)
    return merged, guide


def in_turns(
    server: GoServer, builds: Sequence[GoBuild], rounds: int, folder: Path
) -> tuple[dict[str, list[float]], dict[str, Latency]]:
    """Return CPU seconds of a thousand requests, and times of answers; the first build has no profile.

    Seconds are a pair for each round and guided build.
    """
    seconds: dict[str, list[float]] = {NONE: [], OURS: []}
    answers: dict[str, list[Latency]] = {NONE: [], OURS: []}
    with ExitStack() as stack:
        running = [
            stack.enter_context(_running(server, build.binary, folder / f"serving-{number}"))
            for number, build in enumerate(builds)
        ]
        for round_ in range(rounds + 1):
            costs = [_cost(server, instance) for instance in running]
            if round_:  # the first fills caches
                (none, first), *guided = costs
                for cost, latency in guided:
                    seconds[NONE].append(none)
                    seconds[OURS].append(cost)
                    answers[OURS].append(latency)
                answers[NONE].append(first)
            progress(f"{server.source.name}: round {round_} of {rounds}")
    latencies = {name: Latency(*map(median, zip(*of, strict=True))) for name, of in answers.items()}
    return seconds, latencies


def _cost(server: GoServer, instance: _Instance) -> tuple[float, Latency]:
    """Return the CPU seconds of a thousand requests, and how long they took."""
    meter = CpuMeter(instance.pid)
    before = meter.taken()
    answered = server.answered(instance.port, server.measured)
    return (meter.taken() - before) * _THOUSAND / answered.requests, answered.latency


@contextmanager
def _running(server: GoServer, binary: Path, folder: Path) -> Iterator[_Instance]:
    """Run an instance in a new folder within the block."""
    folder.mkdir()
    log, port = folder / "log", free_port()
    with (
        log.open("wb") as written,
        subprocess.Popen(server.command(binary, port), cwd=folder, stdout=written, stderr=written) as process,
    ):
        try:
            wait_until_answers(port, process, log)
            yield _Instance(port, process.pid)
        finally:
            process.terminate()


def _short(files: Iterable[str]) -> tuple[str, ...]:
    """Return some files that are short, so that a load has each of them many times."""
    return tuple(file for file in files if _SHORT[0] < Path(file).stat().st_size < _SHORT[1])[:_FILES]


def _paths(files: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"/file/{Path(file).name}" for file in files)


def _table(keys: Mapping[str, str], number: int) -> str:
    """Return the table of a target in a list for `pgo-agent scrape`."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return "\n".join(["[[target]]", *lines, f'labels = {{ instance = "{number}" }}', ""])


def milliseconds(text: str) -> float:
    """Return a time as wrk prints it, such as 1.50ms."""
    found = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text)
    assert found is not None, text
    return float(found[1]) * {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000}[found[2]]


def _said(command: Sequence[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stderr)
        done.check_returncode()
    return done.stdout
