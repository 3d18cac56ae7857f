"""The compute profiler on PostgreSQL and nginx, and that in Python programs: their overheads."""

from __future__ import annotations

import json
import os
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

from tests.bench.measure import in_turns, progress, run, within
from tests.bench.report import Section, seconds, table
from tests.bench.rig import ROOT, Rig
from tests.cpu_meter import CpuMeter, children_of
from tests.interop.listening import free_port, wait_until_answers
from tests.interop.postgres_cluster import Cluster, only_postgres, running_postgres

_FREQUENCY = 99
_ROUNDS = 5
_SECONDS = 8
_CAPTURE_SECONDS = 60
_PYTHON_PASSES = 20
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
    """Measure all tables."""
    with only_postgres(), running_postgres(scale=2 if rig.scale > 1 else 10) as cluster:
        native = [_overhead(rig, cluster), _finishing(rig, cluster)]
    return [*native, _python(rig)]


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
    loads: dict[str, tuple[str, AbstractContextManager[object]]] = {
        "pgbench -S": ("postgres", cluster.pgbench(3600, *rig.pgbench))
    }
    if shutil.which("nginx") and shutil.which("wrk"):
        loads["nginx under wrk"] = ("nginx", _nginx(rig))
    for load, (program, running) in loads.items():
        with running:
            for name in backends():
                command = [sys.executable, "-m", "tests.bench.finishing", name, program]
                file = rig.scratch / "cpu.pb.gz"
                cost = json.loads(run([*command, str(length), file], ROOT).output)
                host = cost["sampling"] / length / (os.cpu_count() or 1)
                known = cost["cut_short"] is not None and cost["samples"]
                rows.append(
                    [
                        f"{name}, {load}",
                        f"{100 * host:.2f} %",
                        f"{cost['memory']:.0f} MiB",
                        seconds(cost["cpu"]),
                        f"{cost['samples']:,}",
                        f"{100 * cost['cut_short'] / cost['samples']:.1f} %" if known else "not known",
                        f"{file.stat().st_size / 1000:.0f} KB",
                    ]
                )
                progress(f"compute: {' | '.join(rows[-1])}")
    asked = ["asked", "≤ 2 %", "≤ 190 MiB", "< 2 s", "", "≤ 5 %", ""]
    head = (
        *("profiler, load", "while it samples: CPU of the host", "memory"),
        *("then, to the profile: CPU", "samples", "cut short", "profile"),
    )
    return Section(
        "The compute profiler: what a profile takes",
        f"""{table(head, [asked, *rows])}

CPU time of the agent and the profiler's processes in a capture of {length} s at {_FREQUENCY} Hz, as a share
of the time of all cores; their memory at its end; and their CPU time from the end of the capture to the
file. `pgbench -S` has 2 clients, and wrk 2 connections to Debian's nginx, which has no frame pointers and
sends a page of 16 KB as gzip. Stacks that are cut short aren't known to reach `main`.""",
    )


@contextmanager
def _nginx(rig: Rig) -> Iterator[None]:
    """Run nginx, and wrk on it. At a small scale, wrk leaves most of both cores to other tests."""
    folder, port = rig.scratch / "nginx", free_port()
    folder.mkdir()
    (folder / "index.html").write_text("".join(f"<p>{number} {number**5}</p>\n" for number in range(700)))
    (folder / "nginx.conf").write_text(
        f"{'user root;' if os.geteuid() == 0 else ''} daemon off; worker_processes 1; pid {folder}/pid;"
        f" error_log {folder}/errors; events {{}} http {{ access_log off; gzip on;"
        f" types {{ text/html html; }} server {{ listen 127.0.0.1:{port}; root {folder}; }} }}"
    )
    wrk = ("wrk", "-t1", "-c2", "-d3600s", "-H", "Accept-Encoding: gzip", f"http://127.0.0.1:{port}/")
    slow = () if rig.scale == 1 else ("nice", "-n", "19")
    nginx = ("nginx", "-p", folder, "-e", folder / "errors", "-c", folder / "nginx.conf")
    with subprocess.Popen(nginx) as server:
        try:
            wait_until_answers(port, server, folder / "errors")
            with subprocess.Popen([*slow, *wrk], stdout=subprocess.DEVNULL) as client:
                try:
                    yield
                finally:
                    client.kill()
        finally:
            server.terminate()


def _python(rig: Rig) -> Section:
    loads = ("threads", "extensions", "asyncio")
    passes = max(4, _PYTHON_PASSES // rig.scale)
    rows = []
    for load in loads:
        ways = {
            way: partial(within, [sys.executable, "-m", "tests.bench.sampled", load, way, str(passes)], ROOT)
            for way in ("without", "sampled")
        }
        costs = in_turns(f"compute: Python, {load}", rig.rounds(_ROUNDS), ways)
        ratio = costs["sampled"].cpu / costs["without"].cpu
        rows.append([load, "≤ 1.02", f"{ratio:.3f}"])
    head = ("program", "asked", "CPU, by that without")
    return Section(
        "The Python profiler: what it costs a program",
        f"""{table(head, rows)}

CPU time of the program, and of the process beside it that reads its stacks, for the same work with
`StackSampler` at 100 Hz, by that without: medians of {rig.rounds(_ROUNDS)} runs each, in turns, of {passes}
passes of work. The programs are two threads that compute in Python, two that compress in C, which releases
the interpreter's lock, and 2,000 tasks of asyncio.""",
    )
