"""Each tracker on this machine's kernel finds the function in which a program waits, and how long."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from pgo_agent.errors import ToolFailed
from pgo_agent.latency import (
    TRACKERS,
    Happening,
    Recorder,
    Session,
    StackNamer,
    Tick,
    TrackerBackend,
    TrackerSettings,
    tracker_backends,
)

from tests.agent import frameless
from tests.agent.backends.test_backends import needs_root
from tests.agent.busy import needs_gcc
from tests.agent.frameless import NAPPING
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


class Known(NamedTuple):
    """A way to wait: the function that does, the shortest delay that it may have (ns), and its labels."""

    way: str
    function: str
    shortest: int
    labels: dict[str, str]

    def is_in(self, sample: Sample) -> bool:
        return self.function in sample.functions and self.labels.items() <= sample.labels.items()

    def is_long_in(self, sample: Sample) -> bool:
        return self.is_in(sample) and sample.delay >= self.shortest * sample.events


@pytest.mark.parametrize(
    ("tracker", "threshold", "waits"),
    [
        (
            "offcpu",
            "500us",
            [
                Known("sleep", "sleep_seven", 7 * MS, {"operation": "blocked"}),
                Known("futex", "wait_for_lock", 0, {"operation": "blocked"}),
            ],
        ),
        (
            "syscall",
            "0",  # files of tests may be in memory, and then these take no time at all
            [
                Known("sleep", "sleep_seven", 7 * MS, {"syscall": "nanosleep"}),
                Known("fsync", "write_through", 0, {"syscall": "fsync"}),
                Known("sync", "sync_all", 0, {"syscall": "sync"}),
            ],
        ),
        ("wakeup", "500us", [Known("queue", "nap_among_spinners", 0, {})]),
        (
            "network",
            "500us",
            [
                # A busy machine may get a packet late.
                Known("tcp", "read_late", 0, {"operation": "receive", "device": "lo"}),
                # The kernel sends the first packet again after a second.
                Known("connect", "connect_late", 900 * MS, {"operation": "connect"}),
            ],
        ),
    ],
)
def test_the_waiting_functions_are_found_with_their_delays(
    binary: Path, tmp_path: Path, tracker: str, threshold: str, waits: list[Known]
) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(waiting(binary, known.way, tmp_path / known.way)) for known in waits]
        settings = {"threshold": threshold, "executables": [NAME]}
        _, recorder = stack.enter_context(tracking(tracker, settings))
        for known in waits:
            wait_for_samples(recorder, known.is_long_in)
    samples = samples_of(recorder.profile())
    for known, process in zip(waits, processes, strict=True):
        found = [sample for sample in samples if known.is_in(sample)]
        assert known.shortest <= average(found) < FAR_TOO_LONG
        for sample in found:
            assert sample.labels["tracker"] == tracker
            assert sample.labels["comm"] == NAME[:15]
            assert sample.labels["pid"] == process.pid
            bound = int(sample.labels["latency"])
            assert bound.bit_count() == 1
            # The kernel adds a wait to its count before it does to the delays: one may be read in between.
            assert bound * (sample.events - 1) <= sample.delay < 2 * bound * (sample.events + 1)
            # What the thread waited in begins with the kernel's scheduler, not with the tracker's interrupt.
            assert not [name for name in sample.functions if "irq" in name and name.startswith("asm_sysvec")]


@pytest.mark.system("tc")
@needs_root
@pytest.mark.parametrize(("tracker", "threshold"), [("offcpu", "1ms"), ("syscall", "1ms"), ("wakeup", "0")])
def test_a_wait_in_libc_has_all_of_its_callers(tmp_path: Path, tracker: str, threshold: str) -> None:
    """The program has no frame pointers, and neither has libc."""
    with (
        frameless.running(frameless.build(tmp_path), "nap") as process,
        tracking(tracker, {"threshold": threshold, "pids": [process.pid]}) as (_, recorder),
    ):
        wait_until(lambda: recorder.counts.as_json()["reported"] > 100)
    counts = recorder.counts.as_json()
    naps = sum(
        sample.events
        for sample in samples_of(recorder.profile())
        if [name for name in sample.functions if name in {*NAPPING}] == NAPPING
    )
    assert naps > 0.95 * counts["reported"]
    assert counts["cut_short"] < 0.05 * counts["reported"]


def test_a_packet_that_waits_in_a_queue_is_its_senders(binary: Path) -> None:
    """The device sends 125 bytes in 1 ms; a timer's interrupt, in any thread, takes the next packet."""
    slow = 'ip link set lo up && tc qdisc add dev lo root tbf rate 1mbit burst 1600 latency 1s && exec "$@"'
    in_network = ("unshare", "--net", "--", "sh", "-c", slow, "sh")
    settings = {"threshold": "5ms", "executables": [NAME]}
    with (
        waiting(binary, "send", before=in_network) as process,
        tracking("network", settings) as (_, recorder),
    ):
        found = wait_for_samples(recorder, lambda sample: sample.labels.get("operation") == "send")
    for sample in found:
        assert {"send_two", "main"} <= {*sample.functions}
        assert sample.labels["device"] == "lo"
        assert sample.labels["pid"] == process.pid
    assert 5 * MS <= average(found) < FAR_TOO_LONG


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


def test_processes_that_a_wanted_one_forks_stay_wanted_when_other_settings_change(binary: Path) -> None:
    """The shell waits for a line before it forks, so the tracker sees it fork."""
    forking = ("sh", "-c", 'echo waits; read line; setpriv --pdeathsig KILL -- "$@" & wait', "sh")
    with (
        waiting(binary, "sleep", before=forking) as process,
        tracking("offcpu", {"threshold": "1ms", "pids": [process.pid]}) as (session, recorder),
    ):
        assert process.stdin
        process.stdin.write(b"\n")
        process.stdin.flush()
        wait_for_samples(recorder, lambda sample: "sleep_seven" in sample.functions)
        session.change(session.settings.changed({"threshold": "2ms"}))
        session.flush()
        again = Recorder("offcpu")
        session.listen(again)
        wait_until(  # more than the one that was in flight
            lambda: (
                sum(
                    sample.events
                    for sample in samples_of(again.profile())
                    if "sleep_seven" in sample.functions
                )
                > 1
            )
        )


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """Yield a new control group of version 2."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    root = next((Path(folder) for _, folder, kind, *_ in mounts if kind == "cgroup2"), None)
    if root is None or not os.access(root, os.W_OK):
        pytest.skip("no control groups of version 2, or none can be made")
    group = root / NAME / "inner"
    group.mkdir(parents=True)
    yield group
    wait_until(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()
    group.parent.rmdir()


def test_a_control_group_is_that_of_proc_or_its_folder(binary: Path, cgroup: Path) -> None:
    """The filter comes while both programs wait; then only the one inside is tracked."""
    entering = ("sh", "-c", f'echo $$ > {cgroup}/cgroup.procs && exec "$@"', "sh")
    with (
        waiting(binary, "sleep"),
        waiting(binary, "sleep", before=entering) as inside,
        tracking("offcpu", {"threshold": "5ms", "executables": [NAME]}) as (session, recorder),
    ):
        wait_until(lambda: len({one.labels.get("pid") for one in samples_of(recorder.profile())}) > 1)
        path = re.findall(r"^0::(.*)$", Path(f"/proc/{inside.pid}/cgroup").read_text(), re.MULTILINE)
        for name in (*path, str(cgroup.parent), "/no/such/group"):
            session.change(session.settings.changed({"executables": [], "cgroups": [name]}))
            session.flush()
            before, only = recorder.counts.as_json()["seen"], Recorder("offcpu")
            session.listen(only)
            if name == "/no/such/group":
                session.flush()
                assert recorder.counts.as_json()["seen"] == before
            else:
                found = wait_for_samples(only, lambda sample: "pid" in sample.labels)
                assert {sample.labels["pid"] for sample in found} == {inside.pid}


@pytest.mark.alike(1)
@pytest.mark.parametrize("backend", tracker_backends().values(), ids=lambda backend: backend.name)
def test_a_wait_right_before_a_process_ends_has_its_stack_or_is_counted(
    binary: Path, backend: TrackerBackend
) -> None:
    """A process that was forked has its parent's map; of one that runs a program, nobody could read it."""
    settings = {"threshold": "5ms", "comms": [NAME]}
    with tracking("offcpu", settings, backend) as (session, recorder):
        with waiting(binary, "brief") as server:
            found = wait_for_samples(recorder, lambda one: "sleep_seven" in one.functions)
            assert all("wait_in_a_child" in one.functions for one in found)
            assert server.pid not in {one.labels["pid"] for one in found}
            session.flush()
        assert recorder.counts.as_json()["lost_stacks"] < 0.1 * recorder.counts.as_json()["reported"]
        with waiting(binary, "run"):
            wait_until(lambda: recorder.counts.as_json()["lost_stacks"] > 20)
    counts = recorder.counts.as_json()
    unknown = [
        one
        for one in samples_of(recorder.profile())
        if one.labels.get("operation") == "blocked" and "main" not in one.functions
    ]
    assert counts["lost_stacks"] == pytest.approx(sum(one.events for one in unknown), rel=0.2)


class Heard:
    """A listener that keeps single events."""

    def __init__(self) -> None:
        self.events: list[Happening] = []
        self.late: list[Happening] = []
        self.skipped = 0
        self.heard = threading.Event()

    def add_processes(self, families: Iterable[Sequence[int]]) -> None:
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
            # The agent itself takes some 60 MB, and both together may take 200 MB.
            assert sum(map(memory_of, children_of(os.getpid()))) < 140_000_000
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
    tracker = replace(known, tracepoints=(*known.tracepoints, "irq:no_such"))
    session = Session(tracker, TrackerSettings())
    with tracking("irq", {}):
        pass
    with pytest.raises(ToolFailed, match="this kernel has no tracepoint irq:no_such"):
        session.start()
    assert not session.is_running
