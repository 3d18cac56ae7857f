"""Trackers by bcc, with latency_program.py as it is, over a kernel that does what the test says."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.errors import ToolFailed
from pgo_agent.latency import TRACKERS, Recorder, Session, StackNamer, TrackerSettings
from pgo_agent.latency.bcc_feed import BccTrackers
from pgo_agent.latency.tick import Happening

from tests.agent.backends.test_bcc import PATH, own_code
from tests.agent.busy import needs_gcc
from tests.agent.frameless import NAPPING, build, copied, running, waiting
from tests.agent.latency.waiting import MS, samples_of, wait_until
from tests.agent.serving import parsed
from tests.agent.stand_ins.tools import StandInKernel, needs_btf, use_stand_ins
from tests.forked import NO_CONSTANTS, Constants

FORK = "sched:sched_process_fork"
SHOP, BANK = 4_000_000, 4_000_100  # pids that no processes have
SCHEDULE, UNIX = 0xFFFF_0000_0000_0010, 0xFFFF_0000_0000_0020  # of the stand-in's kernel


def end(delay: int, *, pid: int = SHOP, comm: str = "shop", cpu: int = 0, **rest: Any) -> dict[str, Any]:
    stack = {"kernel": [SCHEDULE], "user": [0x1000]}
    return {
        "what": "end",
        "delay": delay,
        "pid": pid,
        "thread": pid + 1,
        "comm": comm,
        "cpu": cpu,
        **stack,
        **rest,
    }


def fork(pid: int, parent: int) -> dict[str, Any]:
    return {"what": "fork", "pid": pid, "parent": parent}


def begin(id_: int, *, pid: int = SHOP, comm: str = "shop", **rest: Any) -> dict[str, Any]:
    stack = {"kernel": [SCHEDULE], "user": []}
    return {"what": "begin", "id": id_, "pid": pid, "thread": pid + 1, "comm": comm, **stack, **rest}


class Trackers(BccTrackers):
    """Trackers for which this machine is no obstacle."""

    def obstacles(self) -> list[str]:
        return []


class Heard(Recorder):
    """A recorder that also keeps single events."""

    def __init__(self, tracker: str) -> None:
        super().__init__(tracker)
        self.events: list[tuple[Happening, int]] = []
        self.late: list[Happening] = []

    def add_event(self, event: Happening, skipped: int) -> None:
        self.events.append((event, skipped))

    def add_late(self, waiting: Happening) -> None:
        self.late.append(waiting)

    def counted(self, *names: str) -> tuple[int, ...]:
        counts = self.counts.as_json()
        assert counts["seen"] == counts["reported"] + counts["below"] + counts["dropped"]
        return tuple(counts[name] for name in names)


class Tracking:
    """A tracker that runs, and what is heard of it once all that happened is told."""

    def __init__(
        self, kernel: StandInKernel, tracker: str, settings: dict[str, Any], constants: Constants
    ) -> None:
        kernel.has((FORK, *TRACKERS[tracker].tracepoints))
        trackers = Trackers(kernel.python(**constants))
        self.session = Session(TRACKERS[tracker], TrackerSettings.parse(settings), trackers)
        self.heard = Heard(tracker)
        self._happens = kernel.happens

    def happens(self, *what: dict[str, Any]) -> None:
        self._happens(*what)
        self.session.flush()

    def change(self, **settings: Any) -> None:
        self.session.change(self.session.settings.changed(settings))
        self.session.flush()


Track = Callable[..., Tracking]


@pytest.fixture
def track(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Track]:
    use_stand_ins(monkeypatch)
    kernel = StandInKernel(tmp_path, monkeypatch)
    begun: list[Tracking] = []

    def start(tracker: str, constants: Constants = NO_CONSTANTS, **settings: Any) -> Tracking:
        tracking = Tracking(kernel, tracker, settings, constants)
        begun.append(tracking)
        tracking.session.start()
        tracking.session.listen(tracking.heard)
        return tracking

    yield start
    for tracking in begun:
        tracking.session.stop()


@needs_btf
def test_a_process_that_has_ended_has_the_functions_of_the_one_that_it_was_forked_from(track: Track) -> None:
    """If none of its forebears is known, or can be looked at, its stacks count as lost."""
    tracking = track("offcpu", threshold="5ms")
    address, _ = own_code()
    tracking.happens(fork(SHOP, SHOP + 1), fork(SHOP + 1, os.getpid()), fork(BANK, BANK + 1))
    tracking.happens(*(end(7 * MS, pid=pid, kernel=[], user=[address]) for pid in (SHOP, BANK, BANK + 2)))
    assert tracking.heard.counted("reported", "lost_stacks") == (3, 2)
    tracking.session.stop()
    found = {one.labels["pid"]: one.functions for one in samples_of(tracking.heard.profile())}
    assert found == {SHOP: ["sell()", "main"], BANK: [], BANK + 2: []}


def test_events_of_one_kind_are_added_up(track: Track) -> None:
    """The kernel tells what they have in common once; those for which it has no room come one by one."""
    tracking = track("offcpu", threshold="1ms", events=1000)
    tracking.happens(end(2 * MS), end(2 * MS), end(2 * MS, comm="bank"), end(9 * MS))
    tracking.happens(end(2 * MS), end(3 * MS, has_room=False), end(3 * MS, has_room=False))
    assert tracking.heard.counted("seen", "reported") == (7, 7)
    tracking.session.stop()
    found = sorted(
        (one.labels["comm"], one.labels["latency"], one.events, one.delay)
        for one in samples_of(tracking.heard.profile())
    )
    assert found == [
        ("bank", 1 << 20, 1, 2 * MS),
        ("shop", 1 << 20, 3, 6 * MS),
        ("shop", 1 << 21, 2, 6 * MS),
        ("shop", 1 << 23, 1, 9 * MS),
    ]


def test_events_that_are_not_shown_are_counted_once(track: Track) -> None:
    tracking = track("offcpu", threshold="1ms", events=1)
    tracking.happens(*[end(2 * MS)] * 5, *[end(3 * MS, has_room=False)] * 3)
    time.sleep(1.1)  # one a second is shown
    tracking.happens(end(2 * MS))
    assert [skipped for _, skipped in tracking.heard.events] == [0, 7]


def test_what_happens_no_more_makes_room_and_counts_when_it_happens_again(track: Track) -> None:
    tracking = track("offcpu", {"_MANY_SUMS": 0, "_IDLE_TICKS": 2}, threshold="1ms")
    for _ in range(3):
        tracking.happens(end(2 * MS), end(2 * MS))
        for _ in range(4):
            tracking.happens()
    assert tracking.heard.counted("seen", "reported") == (6, 6)
    tracking.session.stop()
    assert [(one.events, one.delay) for one in samples_of(tracking.heard.profile())] == [(6, 12 * MS)]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("frameless"))


@needs_btf
@needs_gcc
def test_a_wait_in_libc_has_the_functions_that_called_it(
    track: Track, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel found only libc's, but has copied the stack once. A wait without a copy is counted."""
    tracking = track("offcpu", threshold="5ms", events=1000)
    with running(program, "nap") as process:
        found = waiting(process.pid)
        nap: dict[str, Any] = {"pid": process.pid, "comm": "nap", "kernel": [], "user": [found.address]}
        tracking.happens(end(7 * MS, **nap, **copied(found), copy=1 << 63), end(7 * MS, **nap, copy=1 << 63))
        tracking.happens(
            end(7 * MS, **nap, copy=1 << 63), end(8 * MS, **nap), end(8 * MS, **nap | {"user": []})
        )
        assert tracking.heard.counted("reported", "cut_short") == (5, 1)
        tracking.session.stop()
        monkeypatch.setenv("PATH", PATH)  # with LLVM's own tools
        profile = tracking.heard.profile()
        # How many of the five are shown depends on how quick the machine is.
        with_copy = [one.stack for one, _ in tracking.heard.events if one.delay == 7 * MS]
        (named,) = {tuple(of) for of in StackNamer().names_of_raw(with_copy)}
    naps = [one for one in samples_of(profile) if "main" in one.functions]
    assert sum(one.events for one in naps) == 3
    for functions in (named, *(one.functions for one in naps)):
        assert [*functions[: len(NAPPING)]] == NAPPING
    read = parsed(profile)
    assert "stacks: by call frame information; 1 of 5 (20.0 %) cut short" in {
        read.string_table[comment].decode() for comment in read.comment
    }


@needs_btf
def test_all_that_happens_is_counted_once_and_has_its_stack_over_the_threshold(track: Track) -> None:
    tracking = track("offcpu", threshold="5ms")
    tracking.happens(fork(SHOP, os.getpid()))
    tracking.happens(
        end(7 * MS), end(6 * MS, cpu=1), end(2 * MS), end(3 * MS, cpu=1), end(100 * MS, kernel=[], user=[])
    )
    tracking.happens(end(7 * MS))
    heard = tracking.heard
    assert heard.counted("seen", "reported", "below", "lost_stacks") == (6, 4, 2, 1)
    assert (heard.histogram.min, heard.histogram.max) == (2 * MS, 100 * MS)
    assert heard.histogram.counts == {21: 1, 22: 1, 23: 3, 27: 1}
    assert heard.histogram.total == 125 * MS
    tracking.session.stop()
    of_shop = [one for one in samples_of(heard.profile()) if one.labels.get("comm") == "shop"]
    assert sorted((one.events, one.delay, one.labels["operation"]) for one in of_shop) == [
        (1, 100 * MS, "blocked"),
        (3, 20 * MS, "blocked"),
    ]
    assert [
        one.functions for one in samples_of(heard.profile()) if one.events == 1 and one.delay < 5 * MS
    ] == [
        ["(below the threshold)"],
        ["(below the threshold)"],
    ]


def test_single_events_are_told_at_most_at_their_rate_and_how_many_not(track: Track) -> None:
    tracking = track("offcpu", threshold="1ms", events=1)
    tracking.happens(*[end(delay * MS) for delay in (2, 3, 4)])
    ((first, skipped),) = tracking.heard.events
    assert (first.delay, first.thread, first.stack.comm, skipped) == (2 * MS, SHOP + 1, "shop", 0)
    assert first.stack.kernel == SCHEDULE.to_bytes(8, "little").hex()
    tracking.change(events=1000)

    def again() -> bool:
        tracking.happens(end(5 * MS))
        return len(tracking.heard.events) > 1

    wait_until(again)
    assert tracking.heard.events[1][1] >= 2


def test_filters_hold_from_when_they_are_changed(track: Track) -> None:
    tracking = track("offcpu", threshold="0", comms=["shop"])
    tracking.happens(end(MS), end(MS, comm="bank", pid=BANK))
    assert tracking.heard.counted("seen") == (1,)
    tracking.change(comms=["bank", "till"])
    tracking.happens(end(MS), end(MS, comm="bank", pid=BANK), end(MS, comm="till", pid=BANK))
    assert tracking.heard.counted("seen") == (3,)
    tracking.change(comms=[], pids=[SHOP])
    tracking.happens(end(MS), end(MS, comm="bank", pid=BANK))
    assert tracking.heard.counted("seen") == (4,)
    tracking.change(pids=[])
    tracking.happens(end(MS), end(MS, comm="bank", pid=BANK))
    assert tracking.heard.counted("seen") == (6,)


def test_a_program_is_found_by_its_file(track: Track) -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeping:
        program = Path(f"/proc/{sleeping.pid}/exe").readlink()
        tracking = track("offcpu", threshold="0", executables=[program.name])
        tracking.happens(end(MS, pid=sleeping.pid), end(MS))
        assert tracking.heard.counted("seen") == (1,)
        tracking.change(executables=[str(program)])
        tracking.happens(end(MS, pid=sleeping.pid), end(MS))
        assert tracking.heard.counted("seen") == (2,)
        sleeping.kill()
    tracking.change(executables=[str(program.parent)])
    tracking.happens(end(MS, pid=sleeping.pid))
    assert tracking.heard.counted("seen") == (2,)


def test_what_is_in_flight_is_listed_with_where_it_waits_until_it_ends(track: Track) -> None:
    tracking = track("offcpu", threshold="1ms", timeout="1s")
    tracking.happens(begin(1, ago=10**9), begin(2, ago=2 * 10**9, comm="bank", pid=BANK), begin(3))
    found = tracking.session.in_flight()
    assert [(one.stack.comm, one.delay // 10**9) for one in found] == [("bank", 2), ("shop", 1), ("shop", 0)]
    assert {one.stack.kernel for one in found} == {SCHEDULE.to_bytes(8, "little").hex()}
    wait_until(lambda: len(tracking.heard.late) >= 2)
    assert {one.stack.comm for one in tracking.heard.late} == {"bank", "shop"}
    tracking.happens(end(3 * MS, id=1))
    assert [one.stack.comm for one in tracking.session.in_flight()] == ["bank", "shop"]
    tracking.change(comms=["bank"])  # which forgets what is in flight of others
    assert [one.stack.comm for one in tracking.session.in_flight()] == ["bank"]


def test_the_stack_of_who_woke_a_thread_is_in_it_while_it_is_wanted(track: Track) -> None:
    tracking = track("offcpu", threshold="1ms")
    woken = end(2 * MS, waker={"pid": BANK, "comm": "bank", "kernel": [UNIX], "user": []})
    tracking.happens(woken)
    tracking.change(wakers=True)
    tracking.happens(woken)
    tracking.change(wakers=False)
    tracking.happens(woken)
    with_waker = [one for one in samples_of(tracking.heard.profile()) if "--" in one.functions]
    assert [(one.events, one.labels["comm"]) for one in with_waker] == [(1, "shop")]
    assert tracking.heard.counted("reported") == (3,)


def test_packets_that_came_from_no_device_are_not_counted(track: Track) -> None:
    received: dict[str, Any] = {"operation": 3, "name": "eth0"}
    tracking = track("network", threshold="1ms")
    tracking.happens(*[end(9 * MS, kernel=stack, **received) for stack in ([UNIX], [SCHEDULE, UNIX])])
    assert tracking.heard.counted("seen", "reported", "abandoned") == (0, 0, 2)
    tracking.happens(end(9 * MS, kernel=[UNIX], **received), end(7 * MS, **received))
    assert tracking.heard.counted("seen", "reported", "abandoned") == (1, 1, 3)
    assert tracking.heard.histogram.max == 7 * MS
    (sample,) = samples_of(tracking.heard.profile())
    assert (sample.labels["device"], sample.labels["operation"]) == ("eth0", "receive")


def test_a_packet_whose_reader_is_not_known_yet_stays_in_flight(track: Track) -> None:
    tracking = track("network", threshold="1ms")
    tracking.happens(begin(1, operation=3), begin(2, operation=4))
    tracking.change(pids=[BANK])
    assert [dict(one.labels)["operation"] for one in tracking.session.in_flight()] == ["receive"]


def test_a_packet_that_nobody_reads_is_forgotten(track: Track) -> None:
    tracking = track("network", {"_TICK_SECONDS": 0.1, "_FORGET_TICKS": 1}, threshold="1ms")
    tracking.happens(begin(1, operation=3, ago=31 * 10**9), begin(2, operation=3, ago=10**9))
    wait_until(lambda: len(tracking.session.in_flight()) == 1)
    tracking.session.flush()
    assert tracking.heard.counted("seen", "abandoned") == (0, 1)
    assert tracking.session.in_flight()[0].delay < 30 * 10**9


def test_a_control_group_is_that_of_its_processes(track: Track) -> None:
    if " - cgroup2 " not in Path("/proc/self/mountinfo").read_text():
        pytest.skip("this machine has no control groups of version 2")
    with subprocess.Popen(["sleep", "600"]) as sleeping:
        tracking = track("offcpu", threshold="1ms")
        tracking.happens(begin(1, pid=sleeping.pid), begin(2))
        tracking.change(cgroups=["/"])
        assert [one.stack.pid for one in tracking.session.in_flight()] == [sleeping.pid]
        tracking.change(cgroups=["/no-such-group"])
        assert tracking.session.in_flight() == []
        sleeping.kill()


def test_more_stacks_than_are_kept_are_counted(track: Track) -> None:
    tracking = track("syscall", {"_MOST_STACKS": 3}, threshold="0")
    tracking.happens(*[end(600, number=number) for number in range(5)], end(600, number=1))
    assert tracking.heard.counted("seen", "reported", "left_out") == (6, 4, 2)
    dropped = [one for one in samples_of(tracking.heard.profile()) if one.functions == ["(dropped)"]]
    assert [(one.events, one.delay) for one in dropped] == [(2, 1200)]


def test_a_kernel_without_its_tracepoint_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = StandInKernel(tmp_path, monkeypatch).has([FORK])
    session = Session(TRACKERS["irq"], TrackerSettings(), Trackers(kernel.python()))
    with pytest.raises(ToolFailed, match="this kernel has no tracepoint irq:irq_handler_entry or "):
        session.start()
