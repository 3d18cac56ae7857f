"""The gain of a Go server: instances with loads of their own are scraped, and new builds get another load."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from threading import Event
from typing import NamedTuple, Protocol

from tests.bench import machine
from tests.bench.measure import progress
from tests.cpu_meter import CpuMeter
from tests.gains.go import GoBuild, GoSource, Profiled, built, collected
from tests.gains.page import NONE, OURS, Gain, Latency
from tests.interop.listening import free_port, wait_until_answers
from tests.server import Server

_AGENT = str(Path(sys.executable).with_name("pgo-agent"))
_PROFILED_SECONDS = 10
_THOUSAND = 1000


class Answered(NamedTuple):
    """The answers to a load: how many, and how long they took."""

    requests: int
    latency: Latency


class Instance(NamedTuple):
    port: int
    process: subprocess.Popen[bytes]


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

    def wait(self, instance: Instance, log: Path) -> None:
        """Wait until an instance answers. Fails with its log if it ends or takes too long."""
        wait_until_answers(instance.port, instance.process, log)

    def answered(self, port: int, load: Sequence[str]) -> Answered:
        """Send a load for some seconds."""


def server_gain(server: GoServer, folder: Path, profiles: int, rounds: int) -> Gain:
    """Build a server in an empty folder, with each of several profiles, and return what its builds cost."""
    stamp, source = machine.stamp(), server.source
    progress(f"{source.name}: getting its sources and building it without a profile")
    source.unpack()
    plain = source.build(folder / "none")
    # Now, since it may build a client, which leaves parts of the server in the cache.
    server.prepare(folder)
    builds = built(source, plain, folder, profiles, partial(profile_servers, server))
    seconds, latencies = in_turns(server, builds.every, rounds, folder)
    how = (
        f"{builds.how} {server.how}\n"
        f"{profiles} profiles were taken by `pgo-agent scrape`, {_PROFILED_SECONDS} s of each instance:\n"
        f"{builds.taken}. CPU times are of the server for {_THOUSAND:,}\n"
        f"requests, the kernel's part included, of the builds with all profiles, in {rounds} rounds. The\n"
        f"times of answers are those of clients that keep the machine busy.\n\n{stamp}"
    )
    return builds.gain(seconds, how, latencies=latencies)


def profile_servers(
    server: GoServer, binary: Path, folder: Path, seconds: int = _PROFILED_SECONDS
) -> Profiled:
    """Scrape instances under load, which run in folders of their own in this one."""
    targets, service, done = folder / "targets.toml", server.source.name, Event()
    with ExitStack() as stack:
        collector = stack.enter_context(Server(folder / "collector"))
        collector.query = {"service": service}
        running = [
            stack.enter_context(_running(server, binary, folder / f"instance-{number}"))
            for number in range(len(server.profiled))
        ]
        tables = [{"service": service, **server.target(instance.port)} for instance in running]
        targets.write_text("".join(map(_table, tables, range(len(tables)))))

        def loaded(instance: Instance, load: Sequence[str]) -> None:
            while not done.is_set():
                server.answered(instance.port, load)

        pool = stack.enter_context(ThreadPoolExecutor(len(running)))
        loads = [pool.submit(loaded, *each) for each in zip(running, server.profiled, strict=True)]
        scrape = [_AGENT, "scrape", "--once", "--seconds", str(seconds), "--targets", str(targets)]
        try:
            said_by([*scrape, "--url", collector.base_url, "--key-file", str(collector.submit_keys)])
        finally:
            done.set()
        for load in loads:
            load.result()
        return collected(collector, folder)


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


def _cost(server: GoServer, instance: Instance) -> tuple[float, Latency]:
    """Return the CPU seconds of a thousand requests, and how long they took."""
    meter = CpuMeter(instance.process.pid)
    before = meter.taken()
    answered = server.answered(instance.port, server.measured)
    return (meter.taken() - before) * _THOUSAND / answered.requests, answered.latency


@contextmanager
def _running(server: GoServer, binary: Path, folder: Path) -> Iterator[Instance]:
    """Run an instance in a new folder within the block."""
    folder.mkdir()
    log, port = folder / "log", free_port()
    with (
        log.open("wb") as written,
        subprocess.Popen(server.command(binary, port), cwd=folder, stdout=written, stderr=written) as process,
    ):
        try:
            instance = Instance(port, process)
            server.wait(instance, log)
            yield instance
        finally:
            process.terminate()


def _table(keys: Mapping[str, str], number: int) -> str:
    """Return the table of a target in a list for `pgo-agent scrape`."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return "\n".join(["[[target]]", *lines, f'labels = {{ instance = "{number}" }}', ""])


def said_by(command: Sequence[str]) -> str:
    """Run a command, and return its output; what it says of an error is shown."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stderr)
        done.check_returncode()
    return done.stdout
