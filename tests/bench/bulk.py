"""Many unread profiles: the first merge by the own workers of a collector, and by a Dask cluster."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.bench import shares
from tests.bench.fleet import Fleet
from tests.bench.measure import Cost, in_turns, progress
from tests.bench.report import Section, ratio, seconds, table
from tests.bench.rig import LARGE, Rig
from tests.bench.serving import ours
from tests.bench.shares import Share, share
from tests.collector.dask_processes import DaskCluster
from tests.interop import ceph_cluster
from tests.interop.ceph_cluster import running_ceph
from tests.server import Server, descendants

_ROUNDS = 3
_ALONE, _CLUSTER = "own workers", "a Dask cluster"
_CORES, _MEBIBYTES = 0.25, 512
_HEAD = ("read by", "asked", "merged after", "own ÷ these", "CPU of the collector", "memory of a Dask worker")


class _Compared(NamedTuple):
    """The costs of both sides, and the peak memory of a Dask worker in MiB."""

    costs: Mapping[str, Cost]
    largest: float

    def table(self, asked: str) -> str:
        alone, spread = self.costs[_ALONE], self.costs[_CLUSTER]
        gain = ratio(alone.wall, spread.wall)
        of_cluster = [asked, seconds(spread.wall), gain, seconds(spread.cpu), f"{self.largest:.0f} MiB"]
        return table(
            _HEAD, [[_ALONE, "", seconds(alone.wall), "", seconds(alone.cpu), ""], [_CLUSTER, *of_cluster]]
        )


class _Shares(NamedTuple):
    """Where processes run: the collector, and each worker of the cluster."""

    collector: Share
    workers: tuple[Share, Share]


def sections(rig: Rig) -> list[Section]:
    """Measure the tables."""
    files = sorted(rig.mutated.iterdir())
    count = rig.count(LARGE)
    everywhere = Share([])
    server = Server(rig.scratch / "bulk")
    together = _compared(rig, files, server, _Shares(everywhere, (everywhere, everywhere)))
    text = f"""{together.table("")}

The clock runs from the start of a collector, which finds {count:,} mutated profiles of one service in a
folder and no rows, until their first merge; the merges are the same bytes. The cluster is a scheduler and two
workers, on the same two cores as the collector. The memory is the peak of the process that reads."""
    if missing := shares.missing() or ceph_cluster.MISSING:
        return [Section("Bulk reads", f"{text}\n\nNot measured: each process by itself, because {missing}.")]
    with running_ceph() as gateway, _shares() as each:
        bucket = {"PGOF_STORAGE": f"s3://{gateway.new_bucket()}/pgo", **gateway.environment}
        apart = _compared(rig, files, Server(rig.scratch / "bulk-apart", bucket), each)
    return [
        Section(
            "Bulk reads",
            f"""{text}

The same profiles in S3, a Ceph on the same machine. The collector and each worker have a quarter of a core
and {_MEBIBYTES} MiB to themselves, which the kernel sees to (cgroups): so they do as on machines of their
own, only slower.

{apart.table("≥ 1.7, ≤ 512 MiB")}""",
        )
    ]


@contextmanager
def _shares() -> Iterator[_Shares]:
    with (
        share(_CORES, _MEBIBYTES) as collector,
        share(_CORES, _MEBIBYTES) as one,
        share(_CORES, _MEBIBYTES) as other,
    ):
        yield _Shares(collector, (one, other))


def _compared(rig: Rig, files: list[Path], server: Server, where: _Shares) -> _Compared:
    """Return what the first merge of a server's profiles costs each side."""
    name = server.home.name
    with server, DaskCluster(server.environment) as cluster:
        for process, its in zip(cluster.workers, where.workers, strict=True):
            its.add(process.pid)
        fleet = Fleet(server, files, rig.count(LARGE))
        fleet.load()
        fleet.all()
        progress(f"{name}: all are submitted")
        of_cluster = {"PGOF_BULK": cluster.address, "PGOF_BULK_BLOBS": str(rig.count(LARGE) // 2)}
        merges: set[str] = set()
        contenders: dict[str, Callable[[], Cost]] = {
            _ALONE: partial(_first_merge, fleet, {}, where.collector, merges),
            _CLUSTER: partial(_first_merge, fleet, of_cluster, where.collector, merges),
        }
        costs = in_turns(name, rig.rounds(_ROUNDS), contenders)
        if len(merges) != 1:
            raise AssertionError("the merges differ")
        return _Compared(costs, max(_peak_memory(process.pid) for process in cluster.workers))


def _first_merge(fleet: Fleet, settings: Mapping[str, str], where: Share, merges: set[str]) -> Cost:
    """Return the cost of a start without rows, and of the merge of all; add its SHA-256 to `merges`."""
    server, before = fleet.server, dict(fleet.server.environment)
    fleet.lose_rows()
    for kept in (server.data / "merged").iterdir():
        kept.unlink()
    server.environment |= settings
    began = time.perf_counter()
    server.start()
    where.add(server.process.pid)
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
