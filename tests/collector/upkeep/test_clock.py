"""Retention by a clock that jumps: it deletes no more than a share at once, until it is told to."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from pgo_collector.traces.trace_store import FILE, TraceReader

from tests.collector.tracing import requests_of, tracing
from tests.collector.ui.test_sign_in import copy_of
from tests.collector.upkeep.test_upkeep import merged
from tests.collector.visitor import Visitor
from tests.collector.webhooks import SECRET, started, waiting
from tests.faults.stacks import DAY, profile_of
from tests.receiver import Receiver
from tests.server import Server
from tests.zygote import Child, Zygote

YEARS = 20 * 365
# The clock of a forked collector, and of its workers, is ahead by as many days as a file says.
_PROGRAM = """
import os, time
from pathlib import Path
real_ns, real = time.time_ns, time.time
def days():
    ahead = os.environ.get("TESTS_AHEAD")
    return int(Path(ahead).read_text() or 0) if ahead else 0
time.time_ns = lambda: real_ns() + days() * 86400 * 10**9
time.time = lambda: real() + days() * 86400
from tests import zygote
zygote.serve_forks()
"""


class Ahead:
    """Forks the command with a clock that the test moves, and runs others by the machine's clock."""

    def __init__(self, file: Path, zygote: Zygote) -> None:
        self._file = file
        self._zygote = zygote
        self.move(0)

    def move(self, days: int) -> None:
        self._file.write_text(str(days))

    def start(self, arguments: Sequence[str], environment: Mapping[str, str]) -> Child:
        return self._zygote.start(arguments, {**environment, "TESTS_AHEAD": str(self._file)})

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        return self._zygote.run(arguments, environment)


@pytest.fixture(scope="module")
def ahead_zygote() -> Iterator[Zygote]:
    """The process that collectors with such a clock are forked from."""
    zygote = Zygote(program=_PROGRAM)
    yield zygote
    zygote.close()


@pytest.fixture
def clock(tmp_path: Path, ahead_zygote: Zygote) -> Ahead:
    return Ahead(tmp_path / "ahead", ahead_zygote)


@pytest.fixture
def keeping(stopped: Server, clock: Ahead) -> Server:
    """A collector that keeps profiles for 30 days, with one of each of the last 8 days."""
    stopped.launcher = clock
    stopped.environment |= {"PGOF_KEEP_DAYS": "30", "PGOF_UPKEEP_SECONDS": "0.3"}
    stopped.start()
    for day in range(8):
        profile = profile_of(f"{day}", time_nanos=time.time_ns() - day * DAY)
        assert stopped.submit(profile).status_code == 204
    return stopped


def events_from(server: Server, event: str) -> int:
    """Wait until two more runs of upkeep have ended; return how often they logged an event."""
    before, runs = len(server.events(event)), len(ends_of_runs(server))
    while len(ends_of_runs(server)) < runs + 2:
        time.sleep(0.1)
    return len(server.events(event)) - before


def ends_of_runs(server: Server) -> list[object]:
    return [*server.events("upkeep done"), *server.events("upkeep failed")]


def test_a_clock_that_jumps_while_it_serves_and_after_a_restart(keeping: Server, clock: Ahead) -> None:
    assert events_from(keeping, "upkeep done")
    clock.move(YEARS)
    assert events_from(keeping, "retention refused")
    refused = keeping.events("retention refused")[-1]
    assert refused["days_ahead"] == pytest.approx(YEARS, abs=0.1)
    assert refused["too_many"] == "8 of 8 single profiles"
    assert "PGOF_RETENTION_SHARE=1" in refused["fix"]
    assert len(merged(keeping)) == 8
    keeping.restart()
    assert events_from(keeping, "retention refused")
    assert len(merged(keeping)) == 8
    clock.move(0)
    assert events_from(keeping, "upkeep done")
    assert len(merged(keeping)) == 8
    keeping.restart()
    assert not events_from(keeping, "retention refused")

    clock.move(YEARS)
    keeping.environment["PGOF_RETENTION_SHARE"] = "1"
    keeping.restart()
    assert events_from(keeping, "upkeep done")
    assert not keeping.blobs()


def test_a_clock_that_jumped_before_retention_ever_ran(keeping: Server, clock: Ahead) -> None:
    """As at an update from a version that didn't note when retention ran."""
    keeping.stop()
    with keeping.catalog() as catalog:
        catalog.exec_driver_sql("DELETE FROM retention")
    clock.move(YEARS)
    keeping.start()
    assert events_from(keeping, "retention refused")
    assert len(merged(keeping)) == 8


def test_some_go_after_the_collector_was_off(keeping: Server, clock: Ahead) -> None:
    """A share is deleted at once, as the clock may be right; bounds of size are kept by any clock."""
    assert events_from(keeping, "upkeep done")
    keeping.stop()
    clock.move(24)  # 2 of 8 are then over 30 days old
    keeping.start()
    assert events_from(keeping, "upkeep done")
    assert {*merged(keeping)} == set("012345")
    keeping.stop()
    clock.move(YEARS)
    keeping.environment["PGOF_KEEP_MEGABYTES"] = "0.0005"
    keeping.start()
    assert events_from(keeping, "retention refused")
    left = {*merged(keeping)}
    assert left
    assert left < set("012345")


@pytest.fixture
def watched(tmp_path: Path, clock: Ahead) -> Iterator[Server]:
    """A collector with an event that nobody takes, a trace, and a session that has ended."""
    server = tracing(tmp_path / "home", {"PGOF_UPKEEP_SECONDS": "0.3", "PGOF_TRACE_RATE": "1"})
    server.launcher = clock
    secret = server.home / "webhook_secret"
    secret.write_text(f"{SECRET}\n")
    server.environment["PGOF_WEBHOOK_SECRET_FILE"] = str(secret)
    with Receiver() as receiver:
        pass
    try:
        assert events_from(started(server, receiver), "upkeep done")
        yield server
    finally:
        server.kill()


def test_events_traces_and_ended_sessions_outlive_a_clock_that_jumps(watched: Server, clock: Ahead) -> None:
    trace = traced(watched, "a")
    visitor = Visitor(watched)
    copy = copy_of(visitor, watched)
    visitor.post("/ui/sign-out")
    assert waiting(watched) == 1
    clock.move(YEARS)
    assert events_from(watched, "upkeep done")
    traced(watched, "b")  # when one is written, those that are too old go
    assert (waiting(watched), len(requests_of(watched, trace, 1))) == (2, 1)
    watched.restart()
    assert events_from(watched, "upkeep done")
    traced(watched, "c")
    assert (waiting(watched), len(requests_of(watched, trace, 1))) == (3, 1)
    clock.move(0)
    assert events_from(watched, "upkeep done")
    assert copy.get("/ui/").status_code == 303


@pytest.mark.parametrize("is_told", [True, False])
def test_events_and_traces_go_once_the_clock_is_right(
    watched: Server, clock: Ahead, *, is_told: bool
) -> None:
    trace = traced(watched, "a")
    clock.move(30)
    if is_told:
        watched.environment["PGOF_RETENTION_SHARE"] = "1"
        watched.restart()
    else:  # whoever took this profile has the same time
        now = time.time_ns() + 30 * DAY
        assert watched.submit(profile_of("now", time_nanos=now)).status_code == 204
    assert watched.wait_for_log("events dropped")["reason"] == "too_old"
    assert events_from(watched, "upkeep done")
    traced(watched, "b")
    assert not [*TraceReader(watched.data / FILE).requests(trace)]


def traced(server: Server, name: str) -> str:
    """Submit a profile, wait until the trace of that is kept, and return its id."""
    answer = server.submit(profile_of(name, time_nanos=time.time_ns()))
    assert answer.status_code == 204
    trace: str = answer.headers["PGO-Trace"]
    requests_of(server, trace, 1)
    return trace
