"""Cold merges: the command beside `pprof`, and the work without starting a process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.bench import measure
from tests.bench.measure import Cost
from tests.bench.report import Section, figures, ratios, seconds, table
from tests.bench.rig import ENGINE, ROOT, Rig

PROCESSES = "Cold: whole processes"
COMMANDS = "Cold: whole processes, Go's as it is typed"
WORK = "Cold: in one process"
# In this many cases the cost of starting a process decides.
_STARTS_DECIDE = 2
_HEAD = ("Go ÷ ours: CPU", "clock", "memory", "ours: CPU", "clock", "memory", "Go: CPU", "clock", "memory")


class Case(NamedTuple):
    """The targets for the whole process and for its work alone: CPU, or wall clock with two processes."""

    name: str
    folder: Path
    size: int
    rounds: int
    process: str
    work: str
    process_of_two: str = ""
    work_of_two: str = ""


def cases(rig: Rig) -> list[Case]:
    """Return the cases, from small to large."""
    real = rig.real
    return [
        Case("10", real, rig.count(10), 7, "≥ 1.5", "≥ 2"),
        Case("50", real, rig.count(50), 7, "≥ 3.5", "≥ 2"),
        Case("200", real, rig.count(200), 5, "≥ 6", "≥ 2"),
        Case("2,000", real, rig.count(2000), 3, "≥ 10", "≥ 2", "≥ 11", "≥ 3"),
        Case("2,000 mutated", rig.mutated, rig.count(2000), 3, "≥ 3", "≥ 2", "≥ 4", "≥ 3"),
        Case(
            "50 of the compiler's `default.pgo`", rig.compiler, rig.count(50), 3, "≥ 6", "≥ 3", "≥ 3", "≥ 3"
        ),
    ]


def sections(rig: Rig) -> list[Section]:
    """Measure all tables."""
    return [_processes(rig), _commands(rig), _work(rig)]


def _processes(rig: Rig) -> Section:
    rows = []
    for case in cases(rig):
        costs = _processes_of(case, rig, [rig.pprof], "processes")
        rows += _rows(case.name, costs, case.process, case.process_of_two)
    return Section(
        PROCESSES,
        f"""{table(("profiles", "asked", *_HEAD), rows)}

`pprof-merge` beside `pprof -symbolize=none -proto`, the program that `go tool pprof` runs, started
directly and not by the `go` command. Go's program parses on all cores at once, ours on one core unless
the row says 2 processes; the memory is then the larger one's. The target is for CPU, and for the clock
with 2 processes.""",
    )


def _commands(rig: Rig) -> Section:
    rows = []
    for case in cases(rig)[:_STARTS_DECIDE]:
        costs = _processes_of(case, rig, [rig.go, "tool", "pprof"], "commands")
        rows += _rows(case.name, costs, case.process)
    starts = measure.in_turns(
        "imports",
        rig.rounds(7),
        {code: _running([sys.executable, "-c", code], ROOT) for code in ("pass", "import pprof_merge")},
    )
    imports = [[f"`{code}`", *figures(cost)] for code, cost in starts.items()]
    return Section(
        COMMANDS,
        f"""{table(("profiles", "asked", *_HEAD), rows)}

`pprof-merge` beside `go tool pprof -symbolize=none -proto`, as typed at a prompt, for so few profiles
that the start dominates: since Go 1.25 the `go` command checks each time whether it has to rebuild the
program.

What Python runs, at most 60 ms asked:

{table(("code", "CPU", "clock", "memory"), imports)}""",
    )


def _processes_of(case: Case, rig: Rig, pprof: list[str | Path], name: str) -> dict[str, Cost]:
    names = sorted(file.name for file in case.folder.iterdir())[: case.size]
    commands: dict[str, list[str | Path]] = {
        "ours": [rig.pprof_merge, "-o", rig.scratch / "ours", *names],
        "Go": [*pprof, "-symbolize=none", "-proto", f"-output={rig.scratch / 'go'}", *names],
    }
    if case.process_of_two:
        commands["ours, 2 processes"] = [rig.pprof_merge, "-j", "2", *commands["ours"][1:]]
    return measure.in_turns(
        f"{name}: {case.name}",
        rig.rounds(case.rounds),
        {contender: _running(command, case.folder) for contender, command in commands.items()},
    )


def _running(command: list[str | Path], folder: Path) -> Callable[[], Cost]:
    return lambda: measure.run(command, folder).cost


def _work(rig: Rig) -> Section:
    rows, floors = [], []
    for case in cases(rig):
        repeat = min(10, max(1, 200 // case.size))
        arguments = [str(case.folder), str(case.size), str(repeat)]
        contenders = {
            "ours": _within(["merge", *arguments]),
            "Go": _within(["merge", *arguments], rig.gobench),
            "ours, inflating": _within(["inflate", *arguments]),
            "Go, inflating": _within(["inflate", *arguments], rig.gobench),
        }
        if case.work_of_two:
            contenders["ours, 2 processes"] = _within(["merge", *arguments, "2"])
        costs = measure.in_turns(f"work: {case.name}", rig.rounds(3), contenders)
        rows += _rows(case.name, costs, case.work, case.work_of_two)
        floors.append([case.name, *_floor(costs["ours"], costs["ours, inflating"])])
        floors[-1] += _floor(costs["Go"], costs["Go, inflating"])
    return Section(
        WORK,
        f"""{table(("profiles", "asked", *_HEAD), rows)}

From files to bytes, without the start of the process: the work of the command, beside Go's `Parse`,
`Merge` and `Write` one after another, as in pgo-fleet. The memory is the whole process's.

The lower bound is the cost of inflating the inputs alone:

{table(("profiles", "ours: inflating", "of ours", "Go: inflating", "of Go's"), floors)}""",
    )


def _within(arguments: list[str], program: Path | None = None) -> Callable[[], Cost]:
    command = [program] if program else ENGINE
    return lambda: measure.within([*command, *arguments], ROOT)


def _floor(whole: Cost, inflating: Cost) -> list[str]:
    return [seconds(inflating.cpu), f"{100 * inflating.cpu / whole.cpu:.0f} %"]


def _rows(name: str, costs: dict[str, Cost], asked: str, asked_of_two: str = "") -> list[list[str]]:
    go, ours, two = costs["Go"], costs["ours"], costs.get("ours, 2 processes")
    rows = [[name, asked, *ratios(go, ours), *figures(ours), *figures(go)]]
    if two:
        rows.append([f"{name}, 2 processes", asked_of_two, *ratios(go, two), *figures(two), *figures(go)])
    return rows
