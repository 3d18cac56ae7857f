"""Many unread profiles: the first merge by the own workers of a collector, and by a Dask cluster."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tests.bench.fleet import Fleet
from tests.bench.measure import Cost, in_turns, progress
from tests.bench.report import Section, ratio, seconds, table
from tests.bench.rig import LARGE, Rig
from tests.bench.serving import largest_memory, ours, sampled
from tests.collector.dask_processes import DaskCluster
from tests.constants import LEAST_UNREAD
from tests.control_group import ControlGroup, NoControlGroup, control_group
from tests.interop import ceph_cluster
from tests.interop.ceph_cluster import running_ceph
from tests.server import Server, descendants

_ROUNDS = 3
_ALONE, _CLUSTER = "own workers", "a Dask cluster"
_CORES, _MEBIBYTES = 0.25, 512
# How often the memory of processes is read, and how often so before new ones are looked for.
_SAMPLE_SECONDS, _SAMPLES = 0.03, 30
_HEAD = (
    "read by",
    "asked",
    "merged after",
    "own ÷ these",
    "CPU of the collector",
    "its largest process",
    "a Dask worker",
)


class _Compared(NamedTuple):
    """The costs of both sides, with the memory of the collector's largest process, and the peak memory of a
    Dask worker in MiB.
    """

    costs: Mapping[str, Cost]
    dask_worker: float

    def table(self, asked: str) -> str:
        alone, spread = self.costs[_ALONE], self.costs[_CLUSTER]
        gain, worker = ratio(alone.wall, spread.wall), f"{self.dask_worker:.0f} MiB"
        return table(
            _HEAD,
            [
                [_ALONE, "", seconds(alone.wall), "", seconds(alone.cpu), f"{alone.memory:.0f} MiB", ""],
                [
                    _CLUSTER,
                    asked,
                    seconds(spread.wall),
                    gain,
                    seconds(spread.cpu),
                    f"{spread.memory:.0f} MiB",
                    worker,
                ],
            ],
        )


class _Groups(NamedTuple):
    """Where processes run: the collector, and each worker of the cluster."""

    collector: ControlGroup
    workers: tuple[ControlGroup, ControlGroup]


def _largest_of(*pids: int) -> Callable[[], float]:
    """Return a function that returns the memory of the largest of these processes, and of all that they have
    started, in MiB.
    """
    samples, every = count(), [*pids]

    def largest() -> float:
        if next(samples) % _SAMPLES == 0:
            every[:] = [each for pid in pids for each in (pid, *descendants(pid))]
        return largest_memory(every)

    return largest


def sections(rig: Rig) -> list[Section]:
    """Measure the tables."""
    files = sorted(rig.mutated.iterdir())
    unbounded = ControlGroup([])
    server = Server(rig.scratch / "bulk")
    together = _compared(rig, files, server, _Groups(unbounded, (unbounded, unbounded)))
    text = f"""{together.table("")}

The clock runs from the start of a collector, which finds {rig.count(LARGE):,} mutated profiles of one
service in a folder and no rows, until their first merge; the merges are the same bytes. The cluster is a
scheduler and two workers, on the same two cores as the collector. The memory of a process is its peak,
without files that it has mapped, whose pages the kernel takes back."""
    if ceph_cluster.MISSING:
        return [Section("Bulk reads", f"{text}\n\nNot measured: S3, because {ceph_cluster.MISSING}.")]
    try:
        apart = _compared_apart(rig, files)
    except NoControlGroup as reason:
        return [Section("Bulk reads", f"{text}\n\nNot measured: each process by itself, because {reason}.")]
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


def _compared_apart(rig: Rig, files: list[Path]) -> _Compared:
    """Compare them over S3, with each process in a group of its own. Raises NoControlGroup."""
    with running_ceph() as gateway, _groups() as each:
        bucket = {"PGOF_STORAGE": f"s3://{gateway.new_bucket()}/pgo", **gateway.environment}
        return _compared(rig, files, Server(rig.scratch / "bulk-apart", bucket), each)


@contextmanager
def _groups() -> Iterator[_Groups]:
    size = _MEBIBYTES << 20
    with (
        control_group(size, _CORES) as collector,
        control_group(size, _CORES) as one,
        control_group(size, _CORES) as other,
    ):
        yield _Groups(collector, (one, other))


def _compared(rig: Rig, files: list[Path], server: Server, where: _Groups) -> _Compared:
    """Return what the first merge of a server's profiles costs each side."""
    name = server.home.name
    with server, DaskCluster(server.environment, workers=2) as cluster:
        for process, its in zip(cluster.workers, where.workers, strict=True):
            its.add(process.pid)
        fleet = Fleet(server, files, rig.count(LARGE))
        fleet.load()
        fleet.all()
        progress(f"{name}: all are submitted")
        of_cluster = {"PGOF_BULK": cluster.address, LEAST_UNREAD: str(rig.count(LARGE) // 2)}
        merges: set[str] = set()
        contenders: dict[str, Callable[[], Cost]] = {
            _ALONE: partial(_first_merge, fleet, {}, where.collector, merges),
            _CLUSTER: partial(_first_merge, fleet, of_cluster, where.collector, merges),
        }
        of_dask = _largest_of(*(process.pid for process in cluster.workers))
        with sampled(of_dask, _SAMPLE_SECONDS) as sizes:
            costs = in_turns(name, rig.rounds(_ROUNDS), contenders)
        if len(merges) != 1:
            raise AssertionError("the merges differ")
        return _Compared(costs, max(sizes))


def _first_merge(fleet: Fleet, settings: Mapping[str, str], where: ControlGroup, merges: set[str]) -> Cost:
    """Return the cost of a start without rows, and of the merge of all; add its SHA-256 to `merges`."""
    server, before = fleet.server, dict(fleet.server.environment)
    fleet.lose_rows()
    for kept in (server.data / "merged").iterdir():
        kept.unlink()
    server.environment |= settings
    began = time.perf_counter()
    server.start()
    where.add(server.process.pid)
    of_server = _largest_of(server.process.pid)
    with ours(server) as serving, sampled(of_server, _SAMPLE_SECONDS) as sizes:
        answer = serving.ask(fleet.all())
        wall = time.perf_counter() - began
        cpu = serving.settled()
    server.environment = before
    merges.add(hashlib.sha256(answer.body).hexdigest())
    return Cost(cpu, wall, max(sizes))
