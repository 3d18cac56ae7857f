"""The compute profiler on PostgreSQL under pgbench: its overhead for queries, and the cost of a profile."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median

from pgo_agent.backends import Backend, SamplingRequest, backends

from tests.bench.measure import progress, run
from tests.bench.report import Section, seconds, table
from tests.bench.rig import ROOT, Rig
from tests.cpu_meter import CpuMeter, children_of
from tests.interop.postgres_cluster import Cluster, only_postgres, running_postgres

_FREQUENCY = 99
_ROUNDS = 5
_SECONDS = 8
_CAPTURE_SECONDS = 60
# bcc compiles for some seconds before it takes samples.
_WARM_SECONDS = {"bcc": 8.0, "perf": 2.0, "bpftrace": 3.0}
_BARE = {
    "bcc": ("profile-bpfcc", "-f", "-F", str(_FREQUENCY)),
    "perf": ("perf", "record", "-q", "-e", "cpu-clock", "-F", str(_FREQUENCY), "-g", "-a", "-o"),
    "bpftrace": (
        "bpftrace",
        "-e",
        f'profile:hz:{_FREQUENCY} /comm == "postgres"/ {{ @[kstack, ustack, comm] = count(); }}',
    ),
}


def sections(rig: Rig) -> list[Section]:
    """Measure both tables."""
    with only_postgres(), running_postgres(scale=2 if rig.scale > 1 else 10) as cluster:
        return [_overhead(rig, cluster), _finishing(rig, cluster)]


def _overhead(rig: Rig, cluster: Cluster) -> Section:
    contenders: dict[str, Callable[[], AbstractContextManager[object]]] = {"none": nullcontext}
    for name, backend in backends().items():
        contenders[name] = partial(_ours, backend)
        if shutil.which(_BARE[name][0]):
            contenders[f"bare {name}"] = partial(_bare, name, rig.scratch)
    ratios: dict[str, list[float]] = {name: [] for name in contenders}
    _cost(cluster, nullcontext, rig)  # fill its caches
    order = [*contenders]
    for _ in range(rig.rounds(_ROUNDS)):
        costs = {name: _cost(cluster, contenders[name], rig) for name in order}
        order.append(order.pop(0))
        progress(f"compute: {', '.join(f'{name} {1e6 * cost:.1f} µs' for name, cost in costs.items())}")
        for name, cost in costs.items():
            ratios[name].append(cost / costs["none"])
    rows = [
        [name, "" if name == "perf" else "≤ 1.03", *(_spread(ratios, of) for of in (name, f"bare {name}"))]
        for name in _BARE
    ]
    head = ("profiler", "asked", "CPU a transaction, by that without one", "the bare tool's")
    return Section(
        "The compute profiler: what it costs PostgreSQL",
        f"""{table(head, rows)}

CPU time of PostgreSQL's processes for each transaction of `pgbench -S` with 2 clients, at {_FREQUENCY}
Hz: the median of {rig.rounds(_ROUNDS)} rounds of {_run_seconds(rig)} s each, taken in turns, with the
lowest and the highest in brackets. The bare tools are `profile-bpfcc`, `perf record -a` and a one-line
`bpftrace`.""",
    )


def _spread(ratios: Mapping[str, list[float]], name: str) -> str:
    """Return the median, the minimum and the maximum, as text."""
    of = ratios.get(name)
    return f"{median(of):.3f} ({min(of):.3f} to {max(of):.3f})" if of else "not installed"


def _run_seconds(rig: Rig) -> int:
    return _SECONDS if rig.scale == 1 else 1


def _cost(cluster: Cluster, profiled: Callable[[], AbstractContextManager[object]], rig: Rig) -> float:
    """Return PostgreSQL's CPU time for one transaction (s), while it is profiled."""
    with profiled():
        meter, idle = CpuMeter(cluster.pid), len(children_of(cluster.pid))
        before = meter.taken()
        with cluster.pgbench(_run_seconds(rig), *rig.pgbench) as pgbench:
            printed, _ = pgbench.communicate()
        while len(children_of(cluster.pid)) > idle:  # its clients' processes
            time.sleep(0.01)
        taken = meter.taken() - before
    processed = re.search(r"transactions actually processed: (\d+)", printed)
    assert processed, printed
    return taken / int(processed[1])


@contextmanager
def _ours(backend: Backend) -> Iterator[None]:
    ended = threading.Event()
    thread = threading.Thread(
        target=backend.record, args=(SamplingRequest(("postgres",), _FREQUENCY), 600.0, ended)
    )
    thread.start()
    time.sleep(_WARM_SECONDS[backend.name])
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _bare(name: str, scratch: Path) -> Iterator[None]:
    output = (scratch / "perf.data",) if name == "perf" else ()
    with subprocess.Popen(
        [*_BARE[name], *output], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as tool:
        time.sleep(_WARM_SECONDS[name])
        try:
            yield
        finally:
            # Its output isn't used, and bpftrace may miss a signal.
            tool.kill()


def _finishing(rig: Rig, cluster: Cluster) -> Section:
    rows = []
    length = _CAPTURE_SECONDS if rig.scale == 1 else 2
    for name in backends():
        command = [sys.executable, "-m", "tests.bench.finishing", name]
        file = rig.scratch / "cpu.pb.gz"
        with cluster.pgbench(600 + length, *rig.pgbench):
            cost = json.loads(run([*command, str(length), file], ROOT).output)
        size = file.stat().st_size
        rows.append([name, "< 2 s", seconds(cost["cpu"]), f"{cost['samples']:,}", f"{size / 1000:.0f} KB"])
        progress(f"compute: {' | '.join(rows[-1])}")
    head = ("profiler", "asked", "CPU", "samples", "profile")
    return Section(
        "The compute profiler: from the last sample to the profile",
        f"""{table(head, rows)}

CPU time of the agent and the profiler's process, from the end of a capture of {length} s at
{_FREQUENCY} Hz to the file.""",
    )
