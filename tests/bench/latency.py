"""Latency trackers: what they cost PostgreSQL under pgbench, and what `track` costs a Python program."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pgo_agent import track, tracked_profile
from pgo_agent.latency import TRACKERS, Recorder, Session, TrackerSettings

from tests.bench.measure import progress
from tests.bench.report import Section, table
from tests.bench.rig import Rig
from tests.cpu_meter import CpuMeter, children_of
from tests.interop.postgres_cluster import Cluster, only_postgres, running_postgres

_ROUNDS = 5
_SECONDS = 8
_WARM_SECONDS = 2.0
_ASKED = {"offcpu": 1.03, "wakeup": 1.03, "syscall": 1.1, "block": 1.01, "irq": 1.01}
_SCRIPTS = {"read-only": "select-only", "read-write": "tpcb-like"}
_TOOLS = {
    "perf sched record": ("perf", "sched", "record", "-q", "-o"),
    "perf trace": ("perf", "trace", "-a", "-o"),
}
_EVENTS = 200_000


class _Cost(NamedTuple):
    """CPU time of PostgreSQL for a transaction (s), and the seconds between two transactions."""

    cpu: float
    clock: float


def sections(rig: Rig) -> list[Section]:
    """Measure both tables."""
    with only_postgres(), running_postgres(scale=2 if rig.scale > 1 else 10) as cluster:
        return [_overhead(rig, cluster), _inside(rig)]


def _overhead(rig: Rig, cluster: Cluster) -> Section:
    contenders: dict[str, Callable[[], AbstractContextManager[object]]] = {"none": nullcontext}
    contenders |= {name: partial(_tracked, [name]) for name in TRACKERS}
    contenders["all trackers"] = partial(_tracked, [*TRACKERS])
    if shutil.which("perf"):
        contenders |= {name: partial(_bare, name, rig.scratch) for name in _TOOLS}
    ratios: dict[tuple[str, str], list[_Cost]] = {}
    for way, script in _SCRIPTS.items():
        _cost(cluster, script, nullcontext, rig)  # fill its caches
        order = [*contenders]
        for _ in range(rig.rounds(_ROUNDS)):
            costs = {name: _cost(cluster, script, contenders[name], rig) for name in order}
            order.append(order.pop(0))
            none = costs.pop("none")
            for name, cost in costs.items():
                ratio = _Cost(cost.cpu / none.cpu, cost.clock / none.clock)
                ratios.setdefault((name, way), []).append(ratio)
                progress(f"latency: {way} with {name}: CPU {ratio.cpu:.3f}, clock {ratio.clock:.3f}")
    rounds, lasting = rig.rounds(_ROUNDS), _run_seconds(rig)
    rows = [
        [
            name,
            f"≤ {_ASKED[name]}" if name in _ASKED else "",
            *_cells([ratios[name, way] for way in _SCRIPTS]),
        ]
        for name in contenders
        if name != "none"
    ]
    head = ["tracker", "asked", *(f"{way}: {of}" for way in _SCRIPTS for of in ("CPU", "clock"))]
    return Section(
        "Latency trackers: what they cost PostgreSQL",
        f"""{table(head, rows)}

CPU time of PostgreSQL's processes for each transaction of pgbench with 2 clients, and the wall-clock time,
by those without a tracker: the median of {rounds} rounds of {lasting} s each, taken in turns, with the lowest
and the highest in brackets. Trackers have a threshold of 1 ms and watch PostgreSQL's processes. `perf sched
record` and `perf trace -a` are what one would use instead of `offcpu` and `syscall`.""",
    )


def _cells(found: Sequence[list[_Cost]]) -> Iterator[str]:
    for costs in found:
        for of in zip(*costs, strict=True):
            yield f"{median(of):.3f} ({min(of):.3f} to {max(of):.3f})"


def _run_seconds(rig: Rig) -> int:
    return _SECONDS if rig.scale == 1 else 1


def _cost(
    cluster: Cluster, script: str, watched: Callable[[], AbstractContextManager[object]], rig: Rig
) -> _Cost:
    with watched():
        meter, idle = CpuMeter(cluster.pid), len(children_of(cluster.pid))
        before = meter.taken()
        with cluster.pgbench(_run_seconds(rig), script=script) as pgbench:
            printed, _ = pgbench.communicate()
        while len(children_of(cluster.pid)) > idle:  # its clients' processes
            time.sleep(0.01)
        taken = meter.taken() - before
    processed = re.search(r"transactions actually processed: (\d+)", printed)
    assert processed, printed
    return _Cost(taken / int(processed[1]), _run_seconds(rig) / int(processed[1]))


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
