"""Latency trackers: what they cost PostgreSQL under pgbench, and what `track` costs a Python program."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median, stdev
from typing import NamedTuple, Self

from pgo_agent import track, tracked_profile
from pgo_agent.latency import TRACKERS, Recorder, Session, TrackerSettings, tracker_backends

from tests.agent.latency.flooding import SHARES, SOURCE, shares_of
from tests.bench.finishing import memory_of
from tests.bench.measure import progress
from tests.bench.report import Section, table
from tests.bench.rig import Rig
from tests.cpu_meter import CpuMeter, children_of
from tests.interop.postgres_cluster import Cluster, only_postgres, running_postgres

_ROUNDS = 5
_SECONDS = 2
_WARM_SECONDS = 1.0
_ASKED = {"offcpu": 1.03, "wakeup": 1.03, "syscall": 1.1, "block": 1.01, "irq": 1.01}
_SCRIPTS = {"read-only": "select-only", "read-write": "tpcb-like"}
_TOOLS = {
    "perf sched record": ("perf", "sched", "record", "-q", "-o"),
    "perf trace": ("perf", "trace", "-a", "-o"),
}
_EVENTS = 200_000
_COUNT_TIME = Path("/proc/sys/kernel/bpf_stats_enabled")
_FIELD = re.compile(r"^(\w+):\s*(\d+)$", re.MULTILINE)
_Watching = Callable[[], AbstractContextManager[object]]


class _Cost(NamedTuple):
    """CPU time of PostgreSQL for a transaction (s), and the seconds between two transactions."""

    cpu: float
    clock: float


class _Load(NamedTuple):
    """The scripts of pgbench, and how long each runs; at a small scale one of them, for a second."""

    scripts: Mapping[str, str]
    seconds: int
    options: tuple[str, ...]

    @classmethod
    def of(cls, rig: Rig) -> Self:
        """Return the load for a scale."""
        scripts = dict([*_SCRIPTS.items()][: None if rig.scale == 1 else 1])
        return cls(scripts, _SECONDS if rig.scale == 1 else 1, rig.pgbench)


def sections(rig: Rig) -> list[Section]:
    """Measure all tables."""
    with only_postgres(), running_postgres(scale=2 if rig.scale > 1 else 10) as cluster:
        overhead = _overhead(rig, cluster)
    return [overhead, _floods(rig), _inside(rig)]


def _overhead(rig: Rig, cluster: Cluster) -> Section:
    contenders: dict[str, _Watching] = {name: partial(_tracked, [name]) for name in TRACKERS}
    contenders["all trackers"] = partial(_tracked, [*TRACKERS])
    if shutil.which("perf"):
        contenders |= {name: partial(_bare, name, rig.scratch) for name in _TOOLS}
    ratios: dict[tuple[str, str], list[_Cost]] = {}
    accounts: dict[tuple[str, str], float] = {}
    load, rounds = _Load.of(rig), rig.rounds(_ROUNDS)
    order = [*contenders]
    _costs(cluster, load)  # fill its caches
    before = _costs(cluster, load)
    for round_ in range(rounds):
        for name in order:
            with contenders[name]():
                watched = [_costs(cluster, load) for _ in range(2)]
                if round_ == 0:
                    accounts |= {(name, way): share for way, share in _accounts(cluster, load).items()}
            after = _costs(cluster, load)
            for costs, none in zip(watched, (before, after), strict=True):
                for way, cost in costs.items():
                    ratio = _Cost(cost.cpu / none[way].cpu, cost.clock / none[way].clock)
                    ratios.setdefault((name, way), []).append(ratio)
                    progress(f"latency: {way} with {name}: CPU {ratio.cpu:.3f}, clock {ratio.clock:.3f}")
            before = after
        order.append(order.pop(0))
    rows = [
        [
            name,
            f"≤ {_ASKED[name]}" if name in _ASKED else "",
            *(
                cell
                for way in load.scripts
                for cell in (*_cells(ratios[name, way]), _share(accounts[name, way]))
            ),
        ]
        for name in contenders
    ]
    head = [
        "tracker",
        "asked",
        *(f"{way}: {of}" for way in load.scripts for of in ("CPU", "clock", "in BPF programs")),
    ]
    return Section(
        "Latency trackers: what they cost PostgreSQL",
        f"""{table(head, rows)}

CPU time of PostgreSQL's processes for each transaction of pgbench with 2 clients, and the wall-clock time,
by those of a run without a tracker just before or after: the median of {2 * rounds} such pairs of runs of
{load.seconds} s each, with its standard error. The trackers take turns. Trackers have a threshold of 1 ms and
watch PostgreSQL's processes. "In BPF programs" is the time that the kernel counts for their programs on all
CPUs, by PostgreSQL's CPU time in another run, since counting costs some too. Two runs of one kind differ by
up to ten percent, so where one to three percent are asked, this account says more than the ratio. `perf
sched record` and `perf trace -a` are what one would use instead of `offcpu` and `syscall`.""",
    )


def _cells(costs: Sequence[_Cost]) -> Iterator[str]:
    for ratios in zip(*costs, strict=True):
        # The standard error of the median of values with a normal distribution.
        error = math.sqrt(math.pi / 2) * stdev(ratios) / math.sqrt(len(ratios))
        yield f"{median(ratios):.3f} ± {error:.3f}"


def _share(share: float) -> str:
    return f"{100 * share:.2f} %" if share else ""


def _costs(cluster: Cluster, load: _Load) -> dict[str, _Cost]:
    """Return what a transaction of each script costs."""
    costs = {}
    for way, script in load.scripts.items():
        taken, transactions = _run(cluster, script, load)
        costs[way] = _Cost(taken / transactions, load.seconds / transactions)
    return costs


def _accounts(cluster: Cluster, load: _Load) -> dict[str, float]:
    """Return the kernel's account of the time in our BPF programs, by PostgreSQL's CPU time."""
    shares = {}
    was = _COUNT_TIME.read_text()
    _COUNT_TIME.write_text("1")
    try:
        for way, script in load.scripts.items():
            before = _program_seconds()
            taken, _ = _run(cluster, script, load)
            shares[way] = (_program_seconds() - before) / taken
    finally:
        _COUNT_TIME.write_text(was)
    return shares


def _program_seconds() -> float:
    """Return the time that the BPF programs of this process's children took, as far as it is counted."""
    programs = {}
    for pid in children_of(os.getpid()):
        for file in Path(f"/proc/{pid}/fdinfo").glob("*"):
            with suppress(OSError):
                found = dict(_FIELD.findall(file.read_text()))
                if "run_time_ns" in found:
                    programs[found["prog_id"]] = int(found["run_time_ns"])
    return sum(programs.values()) / 1e9


def _run(cluster: Cluster, script: str, load: _Load) -> tuple[float, int]:
    """Return the CPU time of PostgreSQL's processes (s) and the number of transactions."""
    meter, idle = CpuMeter(cluster.pid), len(children_of(cluster.pid))
    before = meter.taken()
    with cluster.pgbench(load.seconds, *load.options, script=script) as pgbench:
        printed, _ = pgbench.communicate()
    while len(children_of(cluster.pid)) > idle:  # its clients' processes
        time.sleep(0.01)
    processed = re.search(r"transactions actually processed: (\d+)", printed)
    assert processed, printed
    return meter.taken() - before, int(processed[1])


@contextmanager
def _tracked(names: Sequence[str]) -> Iterator[None]:
    with ExitStack() as stack:
        for name in names:
            session = Session(TRACKERS[name], TrackerSettings(executables=("postgres",)))
            session.listen(Recorder(name))
            session.start()
            stack.callback(session.stop)
        time.sleep(_WARM_SECONDS)
        yield


@contextmanager
def _bare(name: str, scratch: Path) -> Iterator[None]:
    with subprocess.Popen(
        [*_TOOLS[name], scratch / "perf.data"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as tool:
        time.sleep(_WARM_SECONDS)
        try:
            yield
        finally:
            tool.kill()


def _floods(rig: Rig) -> Section:
    binary, length = rig.scratch / "flood", 10 if rig.scale == 1 else 2
    subprocess.run(["gcc", "-O1", "-fno-omit-frame-pointer", "-o", binary, SOURCE], check=True)
    rows = []
    for name, backend in tracker_backends().items():
        with subprocess.Popen([binary], stdout=subprocess.PIPE) as flood:
            assert flood.stdout is not None
            flood.stdout.readline()
            settings, recorder = TrackerSettings(threshold=0, pids=(flood.pid,)), Recorder("syscall")
            session = Session(TRACKERS["syscall"], settings, backend)
            session.listen(recorder)
            try:
                session.start()
                time.sleep(length)
                memory = sum(memory_of(pid) for pid in children_of(os.getpid()) if pid != flood.pid)
                session.stop()
            finally:
                flood.kill()
        counts, shares = recorder.counts.as_json(), shares_of(recorder)
        rows.append(
            [
                name,
                f"{counts['seen'] / length:,.0f}",
                f"{100 * counts['reported'] / counts['seen']:.1f} %",
                f"{max(abs(shares[function] - share) for function, share in SHARES.items()):.1f} points",
                f"{memory:.0f} MiB",
            ]
        )
        progress(f"latency: flood: {' | '.join(rows[-1])}")
    head = ("backend", "events a second", "reported", "largest error of a share", "memory")
    return Section(
        "Latency trackers in a flood",
        f"""{table(head, [["asked", "", "≥ 50 %, or evenly", "", "≤ 190 MiB"], *rows])}

A program makes system calls as fast as it can in four functions, one after another, and the tracker
`syscall` has a threshold of 0, for {length} s: the share of events that it reported with their stacks, how
far the share of a function is from that of its calls, and the memory of the tracker's process.""",
    )


def _inside(rig: Rig) -> Section:
    count = max(1000, _EVENTS // rig.scale)
    costs = []
    for _ in range(rig.rounds(_ROUNDS)):
        began = time.thread_time_ns()
        for _ in range(count):
            with track("event", threshold=3600.0):
                pass
        costs.append((time.thread_time_ns() - began) / count / 1000)
        tracked_profile()
    head = ("an event below the threshold", "CPU")
    rows = [["asked", "< 2 µs"], ["takes", f"{median(costs):.2f} µs"]]
    return Section(
        "Latency in a Python program",
        f"""{table(head, rows)}

An empty block of `with track(key):`, with the loop around it: the median of {len(costs)} times {count:,}.""",
    )
