"""Submits to collectors over PostgreSQL and a bucket: to one, and to three that share them or don't."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count, islice
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import obstore
from obstore.store import ObjectStore, S3Store

from tests.bench.corpus import copies
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
_COLLECTORS = 3
_CLIENTS, _MANY_CLIENTS = 16, 16 * _COLLECTORS
# About as many as each of several collectors has of `_CLIENTS`.
_FEW_CLIENTS = _CLIENTS // _COLLECTORS
# Submits of a client in a round. Until all clients send, and when some have ended, a transaction has fewer
# profiles than in between; with fewer submits that would count too much.
_EACH_CLIENT = 60
_FOLDER, _ONE, _TOGETHER, _APART = (
    "one, SQLite and a folder",
    "one, PostgreSQL and S3",
    f"{_COLLECTORS} that share PostgreSQL and S3",
    f"{_COLLECTORS} that share nothing but the machine",
)
_PUTS = "only puts of the same profiles into S3"
_ASKED = {
    (_ONE, _CLIENTS): "≤ 2 times the CPU",
    (_TOGETHER, _CLIENTS): "≥ 0.9 of one's submits a CPU second",
    (_TOGETHER, _MANY_CLIENTS): "≥ 0.9 of one's submits a CPU second",
}


def sections(rig: Rig) -> list[Section]:
    """Measure the table."""
    if missing := postgres_cluster.MISSING or ceph_cluster.MISSING:
        return [Section("Several collectors", f"Not measured: {missing}.")]
    with running_postgres(scale=0) as cluster, running_ceph() as gateway, ExitStack() as stack:
        running = {
            name: stack.enter_context(_collectors(servers))
            for name, servers in _all_servers(rig.scratch / "several", cluster.port, gateway).items()
        }
        bodies = {name: copies(rig.sources) for name in (*running, _PUTS)}
        loads = [
            *((name, _CLIENTS) for name in running),
            (_ONE, _FEW_CLIENTS),
            *((name, _MANY_CLIENTS) for name in (_TOGETHER, _APART)),
        ]
        contenders: dict[str, Callable[[], Cost]] = {
            _named(name, clients): partial(
                _submits, running[name], bodies[name], rig.count(_EACH_CLIENT * clients), clients
            )
            for name, clients in loads
        }
        puts = rig.count(_EACH_CLIENT * _CLIENTS)
        contenders[_PUTS] = partial(_puts, _store(gateway), bodies[_PUTS], count(), puts)
        for measure in contenders.values():  # the first requests of a kind cost more
            measure()
        costs = in_turns("several", rig.rounds(_ROUNDS), contenders)
    size = median(map(len, islice(copies(rig.sources), len(rig.sources))))
    loads.append((_PUTS, _CLIENTS))
    rows = []
    for name, clients in loads:
        cost = costs[_PUTS if name == _PUTS else _named(name, clients)]
        ratio_to_folder = f"{cost.cpu / costs[_named(_FOLDER, _CLIENTS)].cpu:.2f}"
        rows.append(
            [name, str(clients), _ASKED.get((name, clients), ""), *map(seconds, cost[:2]), ratio_to_folder]
        )

    def share(of: tuple[str, int], by: tuple[str, int]) -> str:
        """Return how many times as many submits a CPU second `by` takes as `of`."""
        return f"{costs[_named(*of)].cpu / costs[_named(*by)].cpu:.2f}"

    together, together_many = (_TOGETHER, _CLIENTS), (_TOGETHER, _MANY_CLIENTS)
    busy, few = share((_ONE, _CLIENTS), together_many), share((_ONE, _FEW_CLIENTS), together)
    fewer = share((_ONE, _CLIENTS), together)
    apart, apart_many = share(together, (_APART, _CLIENTS)), share(together_many, (_APART, _MANY_CLIENTS))
    head = ("collectors", "clients", "asked", "CPU", "clock", "CPU ÷ that of SQLite and a folder")
    return [
        Section(
            "Several collectors",
            f"""{table(head, rows)}

A submit of {size / 1000:.0f} KB, of clients at once on kept connections, {rig.count(_EACH_CLIENT)} of each in
a turn: CPU is the time of all processes of the collectors, and clock the total time divided by the submits.
PostgreSQL and a Ceph of one node, in memory, are on the same two cores, and their CPU isn't counted.

{_COLLECTORS} collectors with {_CLIENTS} clients each take {busy} times as many submits a CPU
second as one that has the machine and {_CLIENTS} clients to itself. With {_CLIENTS} in all they take {few}
times as many as one with {_FEW_CLIENTS}, and {fewer} times as many as one with {_CLIENTS}, whose
transactions have three times the profiles. If each had a catalog and a bucket of its own, they would take
{apart_many} and {apart} times as many as they do now: so much is due to what they share.""",
        )
    ]


def _all_servers(folder: Path, port: int, gateway: Gateway) -> Mapping[str, Sequence[Server]]:
    schemas = Schemas(port)

    def shared(home: Path) -> dict[str, str]:
        return {**schemas.settings(home), **_bucket(gateway)}

    numbered = range(_COLLECTORS)
    together = shared(folder / "together")
    return {
        _FOLDER: [Server(folder / "folder")],
        _ONE: [Server(folder / "one", shared(folder / "one"))],
        _TOGETHER: [Server(folder / f"together-{number}", together) for number in numbered],
        _APART: [Server(home, shared(home)) for home in (folder / f"apart-{number}" for number in numbered)],
    }


@contextmanager
def _collectors(servers: Sequence[Server]) -> Iterator[Serving]:
    with ExitStack() as stack:
        for server in servers:
            stack.enter_context(server)
        yield stack.enter_context(ours(*servers))


def _named(name: str, clients: int) -> str:
    return f"{name}, {clients} clients"


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


def _submits(serving: Serving, bodies: Iterator[bytes], each: int, clients: int) -> Cost:
    requests = [Request("POST", "/v1/submit", body, Server.submit_key) for body in islice(bodies, each)]
    return serving.cost([[request] for request in requests], clients)


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
