"""Merges of 10,000 profiles of a service by a running collector: warm, after a start, with little memory; and
the disk that they take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.bench.fleet import Fleet
from tests.bench.measure import Cost, in_turns, progress
from tests.bench.report import Section, ratio, seconds, table
from tests.bench.rig import LARGE, Rig
from tests.bench.serving import Request, Serving, ours, pgo_fleets_way
from tests.server import Server

_FORMATS = ("pprof", "go")
_TIMES = 3
_TIMES_UNCHANGED = 100
# In MiB: the default of `PGOF_ROWS_MEGABYTES`, and far less than 10,000 profiles need.
_ROOMS = (1024, 64)
_CLIENTS = 8
# The children of a collector: the fork server, and two workers.
_DESCENDANTS = 3
# Each of these profiles is validated alone; only small ones are batched to one worker.
_NO_PROFILE = bytes(100_000)
_THEIRS = "pgo-fleet's way"


class Case(NamedTuple):
    """A case: its target, and a round of tasks, each a series of requests."""

    name: str
    asked: str
    tasks: Callable[[], list[list[Request]]]


def sections(rig: Rig) -> list[Section]:
    """Measure the tables."""
    with Server(rig.scratch / "fleet") as server:
        empty = _empty(server)
        fleet = Fleet(server, sorted(rig.real.iterdir()), rig.count(LARGE))
        fleet.load()
        progress("http: all are submitted")
        warm, them = _warm(rig, fleet)
        return [warm, disk(server), _starts(fleet, them), _rooms(fleet, empty)]


def _empty(server: Server) -> float:
    """Return the server's memory in MiB with nothing stored, after both workers had a request."""
    with ThreadPoolExecutor(_CLIENTS) as clients, ours(server) as serving:
        while len(server.descendants()) < _DESCENDANTS:
            list(clients.map(server.submit, [_NO_PROFILE] * _CLIENTS))
        serving.settled()
        return serving.memory()


def _warm(rig: Rig, fleet: Fleet) -> tuple[Section, Cost]:
    """Return the table, and the cost of a merge in pgo-fleet's way."""
    with ours(fleet.server) as serving, pgo_fleets_way(rig.gobench, rig.real) as theirs:
        cases = [case for name in _FORMATS for case in _changed(fleet, name)] + _unchanged(fleet, serving)
        for name in _FORMATS:
            serving.ask(fleet.all(name))
        contenders = {case.name: partial(_round, serving, case) for case in cases}
        contenders[_THEIRS] = partial(theirs.cost, [[Request("GET", "/v1/merge")]])
        costs = in_turns("http", rig.rounds(3), contenders)
    them = costs[_THEIRS]
    rows = [
        [case.name, case.asked, *map(ratio, them[:2], costs[case.name][:2])]
        + [seconds(cost) for cost in (*costs[case.name][:2], *them[:2])]
        for case in cases
    ]
    head = (f"{_THEIRS} ÷ ours: CPU", "clock", "ours: CPU", "clock", f"{_THEIRS}: CPU", "clock")
    section = Section(
        "Merges over HTTP",
        f"""{table(("10,000 profiles", "asked", *head), rows)}

`pgo-collector serve` with the profiles of 16 instances of a service from seven days, merged over that time
through a kept connection. The profile and the half of the instances are different each time. CPU is the
time of all its processes until they are idle; for a submit and a merge, of both. {_THEIRS.capitalize()} is
a server in Go with the profiles as files: for a merge it parses all of them, merges and writes.""",
    )
    return section, them


def _changed(fleet: Fleet, format_: str) -> list[Case]:
    return [
        Case(
            f"one more is submitted, then all are merged: {format_}",
            "≥ 50",
            lambda: [[fleet.more(), fleet.all(format_)] for _ in range(_TIMES)],
        ),
        Case(
            f"any half of the instances is merged: {format_}",
            "≥ 50",
            lambda: [[fleet.any_half(format_)] for _ in range(_TIMES)],
        ),
    ]


def _unchanged(fleet: Fleet, serving: Serving) -> list[Case]:
    def again(*, is_known: bool) -> list[list[Request]]:
        etag = serving.ask(fleet.all()).etag
        return [[fleet.all(etag=etag if is_known else "")]] * _TIMES_UNCHANGED

    return [
        Case("nothing is new: the merge again", "< 5 ms", lambda: again(is_known=False)),
        Case("nothing is new, and the client has it: 304", "< 5 ms", lambda: again(is_known=True)),
    ]


def _round(serving: Serving, case: Case) -> Cost:
    return serving.cost(case.tasks())


def disk(server: Server) -> Section:
    """Measure what the server's data takes on disk, between a stop and a start."""
    server.stop()
    blobs = _taken([server.data / "blobs"])
    catalog = _taken(server.data.glob("catalog.*"))
    rows = _taken([server.data / "rows"])
    beside = Taken(catalog.nbytes + rows.nbytes, catalog.on_disk + rows.on_disk, 0)
    server.start()
    listed = []
    for name, asked, taken in (
        ("blobs", "", blobs),
        ("the catalog", "", catalog),
        ("`rows/`", "", rows),
        ("the last two", "≤ 10 %", beside),
    ):
        a_profile = [f"{size / blobs.files:,.0f} bytes" for size in (taken.nbytes, taken.on_disk)]
        listed.append([name, asked, a_profile[0], f"{taken.nbytes / blobs.nbytes:.1%}", a_profile[1]])
    progress(f"http: disk: {listed}")
    head = ("what", "asked", "a profile", "÷ blobs", "in blocks of the disk")
    return Section(
        "Disk",
        f"""{table(head, listed)}

{blobs.files:,} profiles of one service, 16 instances, all of which have been merged; their sizes after the
server has stopped. The blobs are gzip at level 1, as Go's runtime sends it. The last column has what the file
system takes, which gives each file whole blocks.""",
    )


class Taken(NamedTuple):
    """The sizes of files, their sizes on disk, and how many there are."""

    nbytes: int
    on_disk: int
    files: int


def _taken(paths: Iterable[Path]) -> Taken:
    """Return what the files at these paths, or below them, take."""
    found = [file for path in paths for file in (path, *path.rglob("*")) if file.is_file()]
    stats = [file.stat() for file in found]
    return Taken(sum(each.st_size for each in stats), sum(512 * each.st_blocks for each in stats), len(found))


def _starts(fleet: Fleet, them: Cost) -> Section:
    """Measure starts; the last one finds no rows on disk, and decodes all profiles again."""
    rows = []
    server = fleet.server
    for name, asked, end in (
        ("SIGKILL", "≤ 3 s", server.kill),
        ("SIGTERM", "≤ 3 s", server.stop),
        ("SIGKILL, and its rows are lost", "≥ 8", fleet.lose_rows),
    ):
        end()
        began = time.perf_counter()
        server.start()
        listening = time.perf_counter() - began
        with ours(server) as serving:
            serving.ask(fleet.more())
            serving.ask(fleet.all())
            answered = time.perf_counter() - began
            cpu = serving.settled()
        rows.append([name, asked, *map(seconds, (answered, listening, cpu)), f"{them.cpu / cpu:.1f}"])
        progress(f"http: started after {' | '.join(rows[-1])}")
    first = median(_first_merge(fleet) for _ in range(_TIMES))
    progress(f"http: first merge after a start: {first:.3f} s CPU")
    head = (
        "10,000 profiles, ended by",
        "asked",
        "merged after",
        "listens after",
        "CPU",
        f"{_THEIRS} ÷ ours: CPU",
    )
    return Section(
        "Restarts",
        f"""{table(head, rows)}

The clock runs from the start of the process until the first merge of all profiles, with one more that is
submitted first. CPU is the time of all processes until they are idle. Without rows, all blobs are decoded
and rows are written for the next start; {_THEIRS} is its merge of the table above, without a start.

After a stop and a start that has come to rest, one more submit and the first merge of all for Go's compiler
(`format=go`) take {seconds(first)} of CPU together; the target is 0.1 s.""",
    )


def _first_merge(fleet: Fleet) -> float:
    """Return the CPU seconds of one more submit, and the first merge after a start that has come to rest."""
    fleet.server.stop()
    fleet.server.start()
    with ours(fleet.server) as serving:
        return serving.cost([[fleet.more(), fleet.all("go")]]).cpu


def _rooms(fleet: Fleet, empty: float) -> Section:
    rows = []
    for room in _ROOMS:
        fleet.server.stop()
        fleet.server.environment["PGOF_ROWS_MEGABYTES"] = str(room)
        fleet.server.start()
        with ours(fleet.server) as serving:
            cost = serving.cost([[fleet.more(), fleet.all()] for _ in range(_TIMES)])
        grown = cost.memory - empty
        rows.append(
            [f"{room} MiB", "≤ 1", f"{grown / room:.2f}", f"{grown:.0f} MiB", *map(seconds, cost[:2])]
        )
        progress(f"http: rooms: {' | '.join(rows[-1])}")
    head = ("`PGOF_ROWS_MEGABYTES`", "asked", "memory ÷ that", "memory", "one more: CPU", "clock")
    return Section(
        "Memory of a collector",
        f"""{table(head, rows)}

The peak growth of its processes' memory over the {empty:.0f} MiB that they have when nothing is stored,
with two workers, in merges of 10,000 profiles after a start, without the pages of files that the kernel can
drop; then the cost of one more submit and the merge of all profiles after it.""",
    )
