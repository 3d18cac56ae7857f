"""Test a program that profiles itself: rounds, faults of the collector, forks and exits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pgo_agent import Collector, ContinuousProfiler, DiskSpool, Dropped, Outbox, StackSampler
from pgo_agent.spool import NoSpool
from pprof_proto.profile_pb2 import Profile

from tests.agent.scripted_server import KEY, Answer, ScriptedServer, problem, scripted_server

PATIENCE = 120.0


class Numbers:
    """A sampler whose profiles are numbers, from 1. It records whether two calls ever overlap."""

    def __init__(self, *, fails: int = 0) -> None:
        self.rounds = 0
        self.fails = fails
        self.overlapped = False
        self._busy = threading.Lock()

    def sample(self, duration: float, until: Event) -> bytes:
        self.overlapped |= not self._busy.acquire(blocking=False)
        until.wait(duration)
        self._busy.release()
        self.rounds += 1
        if self.rounds <= self.fails:
            raise MemoryError
        return str(self.rounds).encode()


class Begun:
    """The default sampler; it sets an event when it begins."""

    def __init__(self) -> None:
        self.has = Event()

    def sample(self, duration: float, until: Event) -> bytes:
        self.has.set()
        return StackSampler().sample(duration, until)


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def functions(profiles: list[bytes]) -> set[bytes]:
    """Return the strings of pprof profiles."""
    return {text for profile in profiles for text in Profile.FromString(profile).string_table}


def arrived(server: ScriptedServer) -> list[int]:
    """Return the numbers of the profiles that the server accepted, in order."""
    return [int(seen.profile) for seen in server.seen if seen.answer == 204]


@pytest.fixture
def collector(server: ScriptedServer) -> Iterator[Collector]:
    with Collector(server.url, KEY, attempts=1) as collector:
        yield collector


@pytest.fixture
def spool(tmp_path: Path) -> DiskSpool:
    return DiskSpool(tmp_path / "spool")


def quick(
    collector: Collector, spool: DiskSpool | None = None, sampler: Numbers | None = None
) -> ContinuousProfiler:
    """Return a client whose waits are too short to slow a test."""
    return ContinuousProfiler(
        collector, spool=spool, sampler=sampler or Numbers(), every=0.05, duration=0.01, jitter=0
    )


def test_profiles_of_the_process_arrive_round_after_round(
    server: ScriptedServer, collector: Collector
) -> None:
    profiler = ContinuousProfiler(collector, every=0.4, duration=0.3, jitter=0)
    here = b"tests.agent.test_profiler.eventually"
    with profiler:
        # The program is busy; in how many of its rounds depends on the machine.
        eventually(
            lambda: sum(range(1_000_000)) > 0 and here in functions([seen.profile for seen in server.seen])
        )
        eventually(lambda: len(server.seen) >= 2)
    first, second = (Profile.FromString(seen.profile) for seen in server.seen[:2])
    assert second.time_nanos >= first.time_nanos + first.duration_nanos
    assert profiler.failures == 0


def test_one_round_at_a_time_however_slow_the_collector(
    server: ScriptedServer, collector: Collector, spool: DiskSpool
) -> None:
    server.then = Answer(204, after=0.15)
    sampler = Numbers()
    with quick(collector, spool, sampler):
        eventually(lambda: len(arrived(server)) >= 3)
    assert not sampler.overlapped
    assert arrived(server) == list(range(1, len(arrived(server)) + 1))


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ({"every": 10.0, "duration": 11.0}, "duration must be more than 0, and no more than every"),
        ({"duration": 0.0}, "duration must be more than 0"),
        ({"jitter": -1.0}, "jitter must be at least 0"),
    ],
)
def test_times_that_make_no_sense_are_refused(
    collector: Collector, times: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        ContinuousProfiler(collector, **times)


def test_a_second_profiler_does_not_begin(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    first, second = Numbers(), Numbers()
    with quick(collector, sampler=first), quick(collector, sampler=second):
        eventually(lambda: first.rounds >= 3)
    assert second.rounds == 0
    assert "profiler already running" in caplog.text


def test_it_can_be_started_again(server: ScriptedServer, collector: Collector) -> None:
    profiler = quick(collector)
    for _ in "12":
        before = len(server.seen)
        with profiler:
            profiler.start()
            eventually(lambda: len(server.seen) > before)  # noqa: B023 - it is called at once
    profiler.stop()


def test_a_sampler_that_fails_is_logged_counted_and_tried_again(
    server: ScriptedServer, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    profiler = quick(collector, sampler=Numbers(fails=3))
    with profiler:
        eventually(lambda: bool(arrived(server)))
    assert profiler.failures == 3
    assert caplog.text.count("MemoryError") >= 3
    assert arrived(server)[0] == 4


def test_the_first_round_waits_for_a_part_of_the_interval(collector: Collector) -> None:
    sampler = Numbers()
    with ContinuousProfiler(collector, sampler=sampler, every=1e8, duration=0.01):
        time.sleep(0.2)
    assert sampler.rounds == 0


@pytest.mark.parametrize(
    "fault",
    [
        Answer(500),
        problem(503, "no space left"),
        Answer(429, {"Retry-After": "1"}),
        Answer(204, cut=True),
        Answer(204, reset=True),
        Answer(204, after=2.0),
    ],
    ids=["500", "503", "429", "cut", "reset", "slow"],
)
def test_what_is_taken_in_an_outage_arrives_after_it(
    server: ScriptedServer, spool: DiskSpool, fault: Answer
) -> None:
    server.then = fault
    sampler = Numbers()
    patience = fault.after / 4 or PATIENCE
    with (
        Collector(server.url, KEY, attempts=1, timeout=patience) as collector,
        quick(collector, spool, sampler) as profiler,
    ):
        eventually(lambda: sampler.rounds >= 5)
        server.then = Answer(204)
        eventually(lambda: profiler.outbox.sent >= 6)
    numbers = [number for number in arrived(server) if number]
    # A collector counts a profile once even if it arrives twice, as after a lost answer.
    assert list(dict.fromkeys(numbers))[:6] == [1, 2, 3, 4, 5, 6]
    assert not spool.dropped
    assert profiler.failures == 0


def test_a_collector_that_asks_for_time_gets_it(
    server: ScriptedServer, collector: Collector, spool: DiskSpool
) -> None:
    server.answers = [Answer(429, {"Retry-After": "1"})]
    with quick(collector, spool):
        eventually(lambda: len(server.seen) >= 2)
    assert server.seen[1].at - server.seen[0].at >= 1.0


def test_nobody_listens_in_the_whole_run_and_then_somebody_does(spool: DiskSpool) -> None:
    with scripted_server() as closed:
        port = closed.server_port
    sampler = Numbers()
    url = f"http://127.0.0.1:{port}"
    with Collector(url, KEY, attempts=1) as collector, quick(collector, spool, sampler) as profiler:
        eventually(lambda: sampler.rounds >= 5)
    assert (profiler.outbox.sent, profiler.failures) == (0, 0)
    with (
        scripted_server(port) as server,
        Collector(url, KEY) as collector,
        quick(collector, DiskSpool(spool.folder)) as profiler,
    ):
        eventually(lambda: profiler.outbox.sent >= sampler.rounds)
    assert arrived(server)[:5] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("status", [400, 404, 413])
def test_what_is_refused_is_dropped_and_counted(
    server: ScriptedServer,
    collector: Collector,
    spool: DiskSpool,
    status: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.answers = [problem(status, "not this one")]
    with quick(collector, spool):
        eventually(lambda: len(arrived(server)) >= 2)
    assert arrived(server)[:2] == [2, 3]
    assert spool.dropped == {Dropped.REFUSED: 1}
    assert f"{status} not this one" in caplog.text


@pytest.mark.parametrize("status", [401, 403, 407])
def test_a_key_that_was_rotated_too_early_loses_nothing(
    server: ScriptedServer,
    collector: Collector,
    spool: DiskSpool,
    status: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.then = problem(status, "there is no such key")
    sampler = Numbers()
    with quick(collector, spool, sampler) as profiler:
        eventually(lambda: sampler.rounds >= 3 and profiler.outbox.key_refused >= 2)
        server.then = Answer(204)
        eventually(lambda: profiler.outbox.sent >= 3)
    assert arrived(server)[:3] == [1, 2, 3]
    assert not spool.dropped
    assert profiler.failures == 0
    loud = [record for record in caplog.records if record.getMessage().startswith("key refused")]
    assert {record.levelname for record in loud} == {"ERROR"}
    assert f"{status} there is no such key" in loud[0].getMessage()
    assert KEY not in caplog.text


def test_without_a_spool_a_refused_key_is_tried_again_before_a_profile_is_lost(
    server: ScriptedServer,
) -> None:
    server.answers = [problem(403, "there is no such key"), Answer(204), *[Answer(401)] * 3]
    with Collector(server.url, KEY, attempts=3, backoff=0.01) as collector:
        outbox = Outbox(collector, NoSpool())
        outbox.deliver(b"1")
        assert (outbox.sent, outbox.key_refused, outbox.spool.dropped) == (1, 0, {})
        outbox.deliver(b"2")
        assert (outbox.sent, outbox.key_refused, outbox.spool.dropped) == (1, 1, {Dropped.UNSENT: 1})
    assert len(server.seen) == 5


def test_without_a_spool_a_profile_is_sent_or_counted_as_lost(
    server: ScriptedServer, collector: Collector
) -> None:
    server.answers = [Answer(500), problem(413, "too large")]
    with quick(collector) as profiler:
        eventually(lambda: bool(arrived(server)))
    assert arrived(server)[0] == 3
    assert profiler.outbox.spool.dropped[Dropped.REFUSED] == 1
    assert profiler.outbox.spool.dropped[Dropped.UNSENT] == 1


def test_profiles_of_ones_own_go_through_the_spool_too(
    server: ScriptedServer, collector: Collector, spool: DiskSpool
) -> None:
    server.answers = [Answer(503)]
    outbox = Outbox(collector, spool)
    for number in (1, 2):
        outbox.deliver(str(number).encode(), "heap")
    assert arrived(server) == [1, 2]
    assert {seen.path for seen in server.seen} == {"/v1/submit?type=heap"}
    assert outbox.sent == 2


def test_a_spool_without_a_disk_sends_at_once(
    server: ScriptedServer, collector: Collector, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with quick(collector, DiskSpool(tmp_path / "file" / "spool")):
        eventually(lambda: len(arrived(server)) >= 3)
    assert arrived(server)[:3] == [1, 2, 3]


def test_stop_cuts_a_profile_short_and_keeps_it(
    server: ScriptedServer, collector: Collector, spool: DiskSpool
) -> None:
    sampler = Begun()
    profiler = ContinuousProfiler(
        collector, spool=spool, sampler=sampler, every=3600, duration=1800, jitter=0
    )
    profiler.start()
    assert sampler.has.wait(PATIENCE)
    profiler.stop(PATIENCE)
    assert server.seen == []
    kept: list[bytes] = []
    spool.drain(lambda upload: kept.append(upload.body), Event())
    assert len(kept) == 1


def test_without_a_spool_stop_cuts_a_profile_short_and_sends_it(
    server: ScriptedServer, collector: Collector
) -> None:
    sampler = Begun()
    profiler = ContinuousProfiler(collector, sampler=sampler, every=3600, duration=1800, jitter=0)
    profiler.start()
    assert sampler.has.wait(PATIENCE)
    profiler.stop(PATIENCE)
    (seen,) = server.seen
    assert 0 < Profile.FromString(seen.profile).duration_nanos < 1800e9


def test_an_agent_that_stops_tries_an_unavailable_collector_once(
    server: ScriptedServer, collector: Collector
) -> None:
    server.then = Answer(503, {"Retry-After": "0"})
    outbox, stopped = Outbox(collector, NoSpool()), Event()
    stopped.set()
    for _ in range(3):
        outbox.deliver(b"1", until=stopped)
    assert len(server.seen) == 1
    assert outbox.spool.dropped[Dropped.UNSENT] == 3


def test_stop_ends_the_wait_for_the_next_attempt(server: ScriptedServer, spool: DiskSpool) -> None:
    server.then = Answer(503, {"Retry-After": "100"})
    with Collector(server.url, KEY) as collector:
        profiler = quick(collector, spool)
        profiler.start()
        eventually(lambda: bool(server.seen))
        start = time.monotonic()
        profiler.stop(PATIENCE)
    assert time.monotonic() - start < PATIENCE / 2


PROGRAM = """
import os, sys, time
from pgo_agent import Collector, ContinuousProfiler, DiskSpool

def busy(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))

def in_parent(seconds): busy(seconds)
def in_child(seconds): busy(seconds)

url, folder, every, duration, fork = sys.argv[1:]
ContinuousProfiler(
    Collector(url, "key", attempts=1),
    spool=DiskSpool(folder),
    every=float(every),
    duration=float(duration),
    jitter=0,
).start()
print("started", flush=True)
child = os.fork() if fork == "fork" else None
if child == 0:
    in_child(0.8)
    os._exit(0)
in_parent(60 if fork == "until killed" else 0.8)
if child:  # not the process that reads its stacks, which ends, too
    assert os.waitpid(child, 0)[1] == 0
"""


def program(server: ScriptedServer, folder: Path, every: float, duration: float, fork: str = "") -> list[str]:
    return [
        sys.executable,
        "-W",
        "ignore::DeprecationWarning",
        "-c",
        PROGRAM,
        server.url,
        str(folder),
        str(every),
        str(duration),
        fork,
    ]


def test_a_forked_child_profiles_itself_too(server: ScriptedServer, tmp_path: Path) -> None:
    done = subprocess.run(
        program(server, tmp_path, 0.2, 0.15, "fork"), timeout=300, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = [functions([seen.profile]) for seen in server.seen]
    assert any(b"__main__.in_child" in names for names in found)
    assert any(b"__main__.in_parent" in names for names in found)
    # Each process samples only itself.
    later = [names for names in found if b"__main__.in_child" in names]
    assert not any(b"__main__.in_parent" in names for names in later)


def test_the_end_of_the_program_keeps_what_was_sampled(server: ScriptedServer, tmp_path: Path) -> None:
    done = subprocess.run(
        program(server, tmp_path, 3600, 1800), timeout=300, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert server.seen == []
    with Collector(server.url, KEY) as collector:
        DiskSpool(tmp_path).drain(collector.send, Event())
    assert b"__main__.in_parent" in functions([seen.profile for seen in server.seen])


def test_a_killed_program_is_continued_by_the_next(server: ScriptedServer, tmp_path: Path) -> None:
    server.then = Answer(500)
    process = subprocess.Popen(
        program(server, tmp_path, 0.2, 0.1, "until killed"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    eventually(lambda: len(list(tmp_path.glob("*.profile"))) >= 3)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    spooled = len(list(tmp_path.glob("*.profile")))
    server.then = Answer(204)
    with Collector(server.url, KEY) as collector:
        DiskSpool(tmp_path).drain(collector.send, Event())
    assert not list(tmp_path.glob("*.profile"))
    # Before these, there may be one that the program had begun to send when it was killed.
    times = [Profile.FromString(seen.profile).time_nanos for seen in server.seen[-spooled:]]
    assert times == sorted(set(times))
    assert len(times) == spooled
