"""Many unread profiles: the first merge by the own workers of a collector, and by a Dask cluster."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tests.bench.fleet import Fleet
from tests.bench.measure import Cost, in_turns, progress
from tests.bench.report import Section, ratio, seconds, table
from tests.bench.rig import LARGE, Rig
from tests.bench.serving import ours
from tests.collector.dask_processes import DaskCluster
from tests.server import Server, descendants

_ROUNDS = 3
_ALONE, _CLUSTER = "own workers", "a Dask cluster"


def sections(rig: Rig) -> list[Section]:
    """Measure the table."""
    server = Server(rig.scratch / "bulk")
    with server, DaskCluster() as cluster:
        fleet = Fleet(server, sorted(rig.mutated.iterdir()), rig.count(LARGE))
        fleet.load()
        fleet.all()
        progress("bulk: all are submitted")
        of_cluster = {"PGOF_BULK": cluster.address, "PGOF_BULK_BLOBS": str(rig.count(LARGE) // 2)}
        merges: set[str] = set()
        contenders: dict[str, Callable[[], Cost]] = {
            _ALONE: partial(_first_merge, fleet, {}, merges),
            _CLUSTER: partial(_first_merge, fleet, of_cluster, merges),
        }
        costs = in_turns("bulk", rig.rounds(_ROUNDS), contenders)
        if len(merges) != 1:
            raise AssertionError("the merges differ")
        largest = max(_peak_memory(process.pid) for process in cluster.workers)
    alone, spread = costs[_ALONE], costs[_CLUSTER]
    rows = [
        [_ALONE, "", seconds(alone.wall), "", seconds(alone.cpu), ""],
        [
            _CLUSTER,
            "≥ 1.7, ≤ 512 MiB",
            seconds(spread.wall),
            ratio(alone.wall, spread.wall),
            seconds(spread.cpu),
            f"{largest:.0f} MiB",
        ],
    ]
    head = (
        "read by",
        "asked",
        "merged after",
        "own ÷ these",
        "CPU of the collector",
        "memory of a Dask worker",
    )
    return [
        Section(
            "Bulk reads",
            f"""{table(head, rows)}

The clock runs from the start of a collector, which finds {rig.count(LARGE):,} mutated profiles of one
service and no rows, until their first merge; the merges are the same bytes. The cluster is a scheduler and
two workers, on the same two cores. The memory is the peak of the process that reads.""",
        )
    ]


def _first_merge(fleet: Fleet, settings: Mapping[str, str], merges: set[str]) -> Cost:
    """Return the cost of a start without rows, and of the merge of all; add its SHA-256 to `merges`."""
    server, before = fleet.server, dict(fleet.server.environment)
    fleet.lose_rows()
    for kept in (server.data / "merged").iterdir():
        kept.unlink()
    server.environment |= settings
    began = time.perf_counter()
    server.start()
    with ours(server) as serving:
        answer = serving.ask(fleet.all())
        wall = time.perf_counter() - began
        cpu = serving.settled()
        memory = serving.memory()
    server.environment = before
    merges.add(hashlib.sha256(answer.body).hexdigest())
    return Cost(cpu, wall, memory)


def _peak_memory(pid: int) -> float:
    """Return the peak memory of a Dask worker's largest process, in MiB."""
    peaks = []
    for each in (pid, *descendants(pid)):
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{each}/status").read_text())
        peaks.append(int(found[1]) / 1024 if found else 0.0)
    return max(peaks)
