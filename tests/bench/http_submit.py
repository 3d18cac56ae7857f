"""Submits over HTTP to a running collector, beside pgo-fleet's way and beside profefe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.bench.measure import Cost, in_turns
from tests.bench.report import Section, ratio, seconds, table
from tests.bench.rig import Rig
from tests.bench.serving import Request, Serving, ours, pgo_fleets_way, profefe
from tests.server import Server

_ROUNDS = 5
_CLIENTS = 16
_PATHS = {
    "ours": "/v1/submit",
    "pgo-fleet's way": "/v1/submit",
    "profefe": "/api/0/profiles?service=s&type=cpu",
}


class Case(NamedTuple):
    """A case: in each round, `clients` clients submit `each` profiles of a folder, from the `first` on.

    `asked` is what is asked of our CPU time, and of our rate beside profefe's.
    """

    name: str
    folder: Path
    each: int
    asked: str
    first: int = 0
    clients: int = 1


def sections(rig: Rig) -> list[Section]:
    """Measure the table."""
    cases = [
        Case("real, one after another", rig.real, rig.count(200), "≤ 1.6 ms"),
        Case(
            f"real, {_CLIENTS} clients at once",
            rig.real,
            rig.count(320),
            "≤ 1.2 ms; rate ≥ 1.2",
            first=rig.count(200) * (_ROUNDS + 1),
            clients=_CLIENTS,
        ),
        Case(
            "the compiler's `default.pgo`", rig.compiler, max(1, rig.count(200) // (_ROUNDS + 1)), "≤ 10 ms"
        ),
    ]
    with ExitStack() as stack:
        server = stack.enter_context(Server(rig.scratch / "submits"))
        running = {
            "ours": stack.enter_context(ours(server)),
            "pgo-fleet's way": stack.enter_context(pgo_fleets_way(rig.gobench, rig.scratch / "pgo-fleet")),
        }
        if rig.profefe is not None:
            running["profefe"] = stack.enter_context(profefe(rig.profefe, rig.scratch / "profefe"))
        rows = [_row(rig, case, running) for case in cases]
    of_each = [(f"{name}: CPU", "clock", "99 %") for name in _PATHS]
    head = ("profiles", "asked", "rate ÷ profefe's", *chain(*of_each))
    return [
        Section(
            "Submits over HTTP",
            f"""{table(head, rows)}

A submit over a kept connection: CPU is the time of all the server's processes until they are idle, clock is
the time until the answer; with several clients, the total time divided by their submits. 99 % of the answers
came within the time beside it. Our CPU includes that of rows which are [made ahead](merging.md#read-ahead)
when one client leaves the server idle, and of some when 16 don't. Our submits are checked, and durable by
then (`fsync`). Pgo-fleet's way is a server in Go that parses each profile and writes it to a file; neither it
nor profefe syncs. [Capacity](capacity.md#submits) says where our time goes.
Profefe itself is measured if `--profefe` names its program.""",
        )
    ]


def _row(rig: Rig, case: Case, running: dict[str, Serving]) -> list[str]:
    files = sorted(case.folder.iterdir())[case.first :]
    bodies = {name: map(Path.read_bytes, files) for name in running}
    contenders = {
        name: partial(_round, serving, _PATHS[name], bodies[name], case) for name, serving in running.items()
    }
    for measure in contenders.values():  # the first requests of a kind cost more
        measure()
    costs = in_turns(f"http_submit: {case.name}", rig.rounds(_ROUNDS), contenders)
    size = median(file.stat().st_size for file in files[: case.each])
    rate = ratio(costs["profefe"].wall, costs["ours"].wall) if "profefe" in costs else ""
    cells = [f"{case.name}, {size / 1000:.0f} KB", case.asked, rate]
    for name in _PATHS:
        cost = costs.get(name)
        cells += ["", "", ""] if cost is None else map(seconds, (cost.cpu, cost.wall, cost.slowest))
    return cells


def _round(serving: Serving, path: str, bodies: Iterator[bytes], case: Case) -> Cost:
    requests = [Request("POST", path, body, Server.submit_key) for body in islice(bodies, case.each)]
    return serving.cost([[request] for request in requests], case.clients)
