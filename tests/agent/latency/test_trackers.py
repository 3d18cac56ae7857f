"""Each tracker on this machine's kernel finds the function in which a program waits, and how long."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pgo_agent.errors import ToolFailed
from pgo_agent.latency import TRACKERS, Happening, Session, StackNamer, Tick, TrackerSettings
from pgo_agent.latency.trackers import Tracker

from tests.agent.busy import needs_gcc
from tests.agent.latency.waiting import (
    MS,
    NAME,
    Sample,
    build,
    samples_of,
    tracking,
    wait_for_samples,
    wait_until,
    waiting,
)
from tests.cpu_meter import children_of

ROOT = Path(__file__).parents[3]
pytestmark = needs_gcc
# A wait takes at least its time; on a busy machine it may take much more.
FAR_TOO_LONG = 10_000 * MS


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("waits"))


def average(samples: Iterable[Sample]) -> float:
    counts, delays = zip(*((sample.events, sample.delay) for sample in samples), strict=True)
    return float(sum(delays) / sum(counts))


@pytest.mark.parametrize(
    ("way", "tracker", "function", "shortest", "labels"),
    [
        ("sleep", "offcpu", "sleep_seven", 7 * MS, {"operation": "blocked"}),
        ("futex", "offcpu", "wait_for_lock", 0, {"operation": "blocked"}),
        ("queue", "wakeup", "nap_among_spinners", 0, {}),
        ("sleep", "syscall", "sleep_seven", 7 * MS, {"syscall": "nanosleep"}),
        ("fsync", "syscall", "write_through", 0, {"syscall": "fsync"}),
        ("sync", "syscall", "sync_all", 0, {"syscall": "sync"}),
        ("tcp", "network", "read_late", 7 * MS, {"operation": "receive", "device": "lo"}),
    ],
)
def test_the_waiting_function_is_found_with_its_delay(  # noqa: PLR0917 - pytest passes them by name
    binary: Path, tmp_path: Path, way: str, tracker: str, function: str, shortest: int, labels: dict[str, str]
) -> None:
    # A system call may take no time at all: files of tests may be in memory.
    settings = {"threshold": "0" if tracker == "syscall" else "500us", "executables": [NAME]}
    with waiting(binary, way, tmp_path / "file") as process, tracking(tracker, settings) as (_, recorder):
        wait_for_samples(
            recorder,
            lambda sample: (
                function in sample.functions
                and labels.items() <= sample.labels.items()
                and sample.delay >= shortest * sample.events
            ),
        )
    found = [
        sample
        for sample in samples_of(recorder.profile())
        if function in sample.functions and labels.items() <= sample.labels.items()
    ]
    assert average(found) < FAR_TOO_LONG
    if tracker != "network":  # which may get the packet late, on a busy machine
        assert average(found) >= shortest
    for sample in found:
        assert sample.labels["tracker"] == tracker
        assert sample.labels["comm"] == NAME[:15]
        assert sample.labels["pid"] == process.pid
        bound = int(sample.labels["latency"])
        assert bound.bit_count() == 1
        assert bound * sample.events <= sample.delay < 2 * bound * sample.events
        # What the thread waited in begins with the kernel's scheduler, not with the tracker's interrupt.
        assert not [name for name in sample.functions if "irq" in name and name.startswith("asm_sysvec")]


def test_a_lock_is_waited_for_as_long_as_it_is_held(binary: Path) -> None:
    """The holder sleeps 5 ms with the lock, so some waits take that; who wakes the waiter is in the stack."""
    settings = {"threshold": "1ms", "executables": [NAME], "wakers": True}
    with waiting(binary, "futex"), tracking("offcpu", settings) as (_, recorder):
        found = wait_for_samples(
            recorder,
            lambda sample: (
                {"wait_for_lock", "--", "release_lock"} <= {*sample.functions}
                and sample.delay / sample.events >= 4 * MS
            ),
        )
    for sample in found:
        waker, own = sample.functions.index("release_lock"), sample.functions.index("wait_for_lock")
        assert waker < sample.functions.index("--") < own
        assert "hold_lock" in sample.functions[:waker]


@pytest.fixture
def disk() -> Iterator[Path]:
    """Yield a folder on the disk of the repository: temporary ones may be in memory."""
    (ROOT / ".dev").mkdir(exist_ok=True)
    with TemporaryDirectory(dir=ROOT / ".dev") as folder:
        if not os.major(Path(folder).stat().st_dev):
            pytest.skip(f"{folder} is on no block device")
        yield Path(folder)


def test_requests_to_a_disk_are_those_of_the_function(binary: Path, disk: Path) -> None:
    settings = {"threshold": "0", "executables": [NAME]}
    with waiting(binary, "fsync", disk / "file"), tracking("block", settings) as (_, recorder):
        found = wait_for_samples(recorder, lambda sample: "write_through" in sample.functions)
    assert "write" in {sample.labels["operation"] for sample in found}
    assert all(Path("/sys/class/block", str(sample.labels["device"])).exists() for sample in found)
    assert 0 < average(found) < FAR_TOO_LONG


def test_a_flush_ends_although_its_sector_is_another_then(binary: Path, disk: Path) -> None:
    device = Path("/sys/dev/block", "{}:{}".format(*split_device(disk))).resolve()
    kind = (device / "queue/write_cache", device.parent / "queue/write_cache")
    if not any(file.exists() and file.read_text() == "write back\n" for file in kind):
        pytest.skip(f"{device.name} has no cache to flush")
    with waiting(binary, "fsync", disk / "file"), tracking("block", {"threshold": "0"}) as (_, recorder):
        wait_for_samples(recorder, lambda sample: sample.labels.get("operation") == "flush")


def split_device(path: Path) -> tuple[int, int]:
    number = path.stat().st_dev
    return os.major(number), os.minor(number)


@pytest.mark.parametrize("tracker", ["irq", "softirq"])
def test_interrupts_are_named(tracker: str) -> None:
    with tracking(tracker, {"threshold": "0"}) as (_, recorder):
        found = wait_for_samples(recorder, lambda sample: "vector" in sample.labels)
    assert 0 < average(found) < FAR_TOO_LONG
    if tracker == "softirq":
        assert {sample.labels["vector"] for sample in found} <= {
            *("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
        }


def test_a_raised_threshold_and_other_filters_take_effect_while_it_runs(binary: Path) -> None:
    settings = {"threshold": "1ms", "executables": [NAME]}
    with waiting(binary, "sleep") as process, tracking("offcpu", settings) as (session, recorder):
        counts = recorder.counts.as_json
        wait_until(lambda: counts()["reported"])
        session.change(session.settings.changed({"threshold": "1000s"}))
        session.in_flight()  # the answer comes after all that was printed before the change
        seen = counts()["seen"]
        wait_until(lambda: counts()["seen"] > seen)  # a tick has begun before the change
        reported, below = counts()["reported"], counts()["below"]
        wait_until(lambda: counts()["below"] > below + 10)
        assert counts()["reported"] == reported
        functions = [sample.functions for sample in samples_of(recorder.profile())]
        assert ["(below the threshold)"] in functions
        session.change(session.settings.changed({"executables": [], "pids": [os.getppid()]}))
        session.change(session.settings.changed({"executables": [], "pids": [process.pid]}))
        below = counts()["below"]
        wait_until(lambda: counts()["below"] > below)
    assert session.failure is None


class Heard:
    """A listener that keeps single events."""

    def __init__(self) -> None:
        self.events: list[Happening] = []
        self.late: list[Happening] = []
        self.skipped = 0
        self.heard = threading.Event()

    def add_processes(self, pids: Iterable[int]) -> None:
        pass

    def add_tick(self, tick: Tick) -> None:
        pass

    def add_event(self, event: Happening, skipped: int) -> None:
        self.events.append(event)
        self.skipped += skipped

    def add_late(self, waiting: Happening) -> None:
        self.late.append(waiting)


def test_what_waits_longer_than_the_timeout_is_reported_before_it_ends(binary: Path) -> None:
    settings = {"timeout": "200ms", "executables": [NAME]}
    with waiting(binary, "storm") as process, tracking("syscall", settings) as (session, _):
        heard = Heard()
        session.listen(heard)
        assert process.stdin
        process.stdin.write(b"\n")
        process.stdin.flush()
        wait_until(lambda: [one for one in heard.late if ("syscall", "pause") in one.labels])
        (late,) = [one for one in heard.late if ("syscall", "pause") in one.labels]
        assert late.delay >= 200 * MS
        assert late.stack.pid == process.pid
        (names,) = StackNamer().names_of_raw([late.stack])
        assert "main" in names or "__libc_start_call_main" in names
        (still,) = [one for one in session.in_flight() if ("syscall", "pause") in one.labels]
        assert still.delay > late.delay
        assert still.stack == late.stack


def memory_of(pid: int) -> int:
    """Return the memory of a tracker's process, with its share of what others use, too (bytes)."""
    if b"latency_program" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        return 0
    found = re.search(r"^Pss: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return 1024 * int(found[1]) if found else 0


def test_a_storm_is_counted_and_bounded(binary: Path) -> None:
    """300,000 system calls over a threshold of 0: more than can be read."""
    with waiting(binary, "storm") as process:
        with tracking("syscall", {"threshold": "0", "pids": [process.pid]}) as (_, recorder):
            assert process.stdin
            assert process.stdout
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"stormed\n"
            assert sum(map(memory_of, children_of(os.getpid()))) < 200_000_000
        counts = recorder.counts.as_json()
    assert counts["seen"] > 150_000  # the kernel skips a program while another runs
    assert counts["seen"] == counts["reported"] + counts["below"] + counts["dropped"]
    assert recorder.histogram.count == counts["seen"] - counts["table_full"] - counts["missed"]
    samples = samples_of(recorder.profile())
    assert sum(sample.events for sample in samples) == recorder.histogram.count
    assert sum(sample.delay for sample in samples) == recorder.histogram.total
    calls = [sample for sample in samples if sample.labels.get("syscall") == "getppid"]
    assert all({"storm", "main"} <= {*sample.functions} for sample in calls)


def test_a_missing_tracepoint_is_named() -> None:
    known = TRACKERS["irq"]
    tracker = Tracker(
        known.name, known.measures, known.stack, (*known.tracepoints, "irq:no_such"), known.labels
    )
    session = Session(tracker, TrackerSettings())
    with tracking("irq", {}):
        pass
    with pytest.raises(ToolFailed, match="this kernel has no tracepoint irq:no_such"):
        session.start()
    assert not session.is_running
