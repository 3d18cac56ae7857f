"""Submits to collectors over PostgreSQL and a bucket: to one, and to three at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count, islice
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import obstore
from obstore.store import ObjectStore, S3Store

from tests.bench.measure import Cost, in_turns
from tests.bench.report import Section, seconds, table
from tests.bench.rig import Rig
from tests.bench.serving import Request, Serving, ours
from tests.catalogs import Schemas
from tests.interop import ceph_cluster, postgres_cluster
from tests.interop.ceph_cluster import Gateway, running_ceph
from tests.interop.postgres_cluster import running_postgres
from tests.server import Server

_ROUNDS = 5
_CLIENTS = 16
_COLLECTORS = 3
_EACH = 320
_ALONE, _ONE, _SEVERAL, _PUTS = (
    "one, SQLite and a folder",
    "one, PostgreSQL and S3",
    f"{_COLLECTORS}, PostgreSQL and S3",
    "only puts of the same profiles into S3",
)
_ASKED = {_ONE: "≤ 2 times the CPU", _SEVERAL: "≥ 0.9 of the submits a CPU second"}


def sections(rig: Rig) -> list[Section]:
    """Measure the table."""
    if missing := postgres_cluster.MISSING or ceph_cluster.MISSING:
        return [Section("Several collectors", f"Not measured: {missing}.")]
    each = rig.count(_EACH)
    files = sorted(rig.real.iterdir())
    with running_postgres(scale=0) as cluster, running_ceph() as gateway, ExitStack() as stack:
        homes = {name: rig.scratch / f"several-{number}" for number, name in enumerate((_ONE, _SEVERAL))}
        running = {_ALONE: stack.enter_context(_collectors(rig.scratch / "alone", 1, {}))}
        for name, servers in ((_ONE, 1), (_SEVERAL, _COLLECTORS)):
            catalog = Schemas(cluster.port).settings(homes[name])
            settings = {**catalog, **_bucket(gateway)}
            running[name] = stack.enter_context(_collectors(homes[name], servers, settings))
        bodies = {name: map(Path.read_bytes, files) for name in (*running, _PUTS)}
        contenders = {
            name: partial(_submits, serving, bodies[name], each) for name, serving in running.items()
        }
        contenders[_PUTS] = partial(_puts, _store(gateway), bodies[_PUTS], count(), each)
        for measure in contenders.values():  # the first requests of a kind cost more
            measure()
        costs = in_turns("several", rig.rounds(_ROUNDS), contenders)
    size = median(file.stat().st_size for file in files[:each])
    rows = [
        [name, _ASKED.get(name, ""), *map(seconds, cost[:2]), f"{cost.cpu / costs[_ALONE].cpu:.2f}"]
        for name, cost in costs.items()
    ]
    head = ("collectors", "asked", "CPU", "clock", "CPU ÷ that of SQLite and a folder")
    share = costs[_ONE].cpu / costs[_SEVERAL].cpu
    return [
        Section(
            "Several collectors",
            f"""{table(head, rows)}

A submit of {size / 1000:.0f} KB, of {_CLIENTS} clients at once on kept connections: CPU is the time of all
processes of the collectors, and clock the total time divided by the submits. {_COLLECTORS} collectors take
{share:.2f} times as many submits a CPU second as one. PostgreSQL and a Ceph of one node, in memory, are on
the same machine, and their CPU isn't counted.""",
        )
    ]


@contextmanager
def _collectors(home: Path, number: int, settings: Mapping[str, str]) -> Iterator[Serving]:
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(home / str(each), settings)) for each in range(number)]
        yield stack.enter_context(ours(*servers))


def _bucket(gateway: Gateway) -> dict[str, str]:
    return {"PGOF_STORAGE": f"s3://{gateway.new_bucket()}/pgo", **gateway.environment}


def _store(gateway: Gateway) -> ObjectStore:
    return S3Store(
        gateway.new_bucket(),
        endpoint=gateway.url,
        access_key_id=gateway.access_key,
        secret_access_key=gateway.secret_key,
        client_options={"allow_http": True},
    )


def _submits(serving: Serving, bodies: Iterator[bytes], each: int) -> Cost:
    requests = [Request("POST", "/v1/submit", body, Server.submit_key) for body in islice(bodies, each)]
    return serving.cost([[request] for request in requests], _CLIENTS)


def _puts(store: ObjectStore, bodies: Iterator[bytes], names: Iterator[int], each: int) -> Cost:
    """Return the cost of putting profiles by as many threads."""
    contents = [*islice(bodies, each)]
    began, before = perf_counter(), process_time()
    with ThreadPoolExecutor(_CLIENTS) as pool:
        for put in [pool.submit(_put, store, str(next(names)), content) for content in contents]:
            put.result()
    return Cost((process_time() - before) / each, (perf_counter() - began) / each, 0)


def _put(store: ObjectStore, name: str, content: bytes) -> None:
    obstore.put(store, name, content, mode="create", use_multipart=False)
