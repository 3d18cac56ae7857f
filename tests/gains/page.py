"""docs/gains.md: a table of all programs, and how each was measured; written by the run that measures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median_low
from types import MappingProxyType
from typing import NamedTuple

from tests.bench import report
from tests.bench.report import Section
from tests.gains.costs import Compared

FILE = Path(__file__).parents[2] / "docs" / "gains.md"
# From this many instructions on, they are given in millions: those of a transaction are fewer.
_MILLIONS = 10_000_000
NONE, OURS, WITH_PROGRAM, INSTRUMENTED = "none", "ours", "ours, with the program", "instrumented"
LAID_OUT = "ours, and BOLT"
INTRODUCTION = Path(__file__).with_name("introduction.txt").read_text()
_TABLE, _BUILDS = "All programs", "What a Go build costs, and how servers answer"
# The programs of the table, by their first words: the kind by which it is sorted.
KINDS = MappingProxyType(
    {
        "etcd": "server",
        "pages": "server",
        "prometheus": "server",
        "postgresql": "database",
        "sqlite": "database",
        "esbuild": "compiler",
        "glua": "interpreter",
        "lua": "interpreter",
        "python": "interpreter",
        "restic": "files",
        "json": "text",
        "logs": "text",
    }
)
_HEAD = (
    "kind",
    "program",
    "compiler",
    "profile",
    "instructions",
    "instructions saved",
    "of what instrumented saves",
    "CPU",
    "CPU without ÷ with",
    "command",
)


_BUILDS_HEAD = ("program", "profile", "binary", "build, CPU", "p50", "p99")


class Row(NamedTuple):
    """A row of the table, as text."""

    kind: str
    program: str
    compiler: str
    profile: str
    instructions: str
    saved: str
    share: str
    cpu: str
    ratio: str
    command: str


class Built(NamedTuple):
    """The cost of a build: the size of the program in bytes, and CPU seconds."""

    size: int
    cpu: float


class Latency(NamedTuple):
    """The time of a server's answers in milliseconds: the median and the 99th percentile."""

    p50: float
    p99: float


class Gain(NamedTuple):
    """The measurements of a program: the costs of its builds by their profiles, the first without one.

    `counted` has the executed instructions of the builds with each profile, or nothing. `how` is the text on
    how it was measured. `built` has what builds of Go cost, and `latencies` how servers answered.
    """

    program: str
    compiler: str
    command: str
    counted: Mapping[str, Sequence[int]]
    timed: Mapping[str, Compared]
    how: str
    built: Mapping[str, Built] = MappingProxyType({})
    latencies: Mapping[str, Latency] = MappingProxyType({})

    def rows(self) -> list[Row]:
        """Return the rows of the table."""
        return [
            Row(
                KINDS[re.split(r"\W", self.program)[0]],
                self.program,
                self.compiler,
                profile,
                *self._instructions(profile),
                *self._cpu(profile),
                f"`{self.command}`",
            )
            for profile in self.timed
        ]

    def builds(self) -> list[tuple[str, ...]]:
        """Return the rows of the table of builds and latencies."""
        return [
            (
                self.program,
                profile,
                f"{built.size / 1e6:.1f} MB",
                report.seconds(built.cpu),
                *(f"{each:.2f} ms" for each in self.latencies.get(profile, ())),
            )
            for profile, built in self.built.items()
        ]

    def _instructions(self, profile: str) -> tuple[str, str, str]:
        if profile not in self.counted:
            return "", "", ""
        (first,), count = self.counted[NONE], median_low(self.counted[profile])
        shown = f"{count / 1e6:,.0f} M" if count >= _MILLIONS else f"{count:,}"
        if profile == NONE:
            return shown, "", ""
        return shown, f"{100 * (first - count) / first:.1f} %", self._share(profile)

    def _share(self, profile: str) -> str:
        """Return what is saved of what the instrumented build saves: the median, the least and the most."""
        (first,), (best,) = self.counted[NONE], self.counted.get(INSTRUMENTED, self.counted[NONE])
        if best >= first:
            return ""
        counts = self.counted[profile]
        middle, least, most = (
            f"{100 * (first - count) / (first - best):.0f}"
            for count in (median_low(counts), max(counts), min(counts))
        )
        return f"{middle} % ({least} to {most})" if len(counts) > 1 else f"{middle} %"

    def _cpu(self, profile: str) -> tuple[str, str]:
        cost = self.timed[profile]
        ratio = f"{cost.ratio:.2f} ({cost.low:.2f} to {cost.high:.2f})"
        return report.seconds(cost.seconds), "" if profile == NONE else ratio


def _place(row: Row) -> tuple[int, str, str]:
    return [*dict.fromkeys(KINDS.values())].index(row.kind), row.program, row.compiler


def write(file: Path, gain: Gain) -> None:
    """Write the rows of a program with a compiler in place of the old ones, and the section about them."""
    old = file.read_text() if file.exists() else ""
    rows = gain.rows()
    measured = {(row.program, row.compiler) for row in rows}
    kept = [row for row in read(old) if (row.program, row.compiler) not in measured]
    every: list[Row] = sorted([*kept, *rows], key=_place)
    sections = [Section(_TABLE, report.table(_HEAD, every))]
    if gain.built:
        others = [row for row in _rows(old, _BUILDS) if row[0] != gain.program]
        padded = [row + ("",) * (len(_BUILDS_HEAD) - len(row)) for row in gain.builds()]
        sections.append(Section(_BUILDS, report.table(_BUILDS_HEAD, sorted([*others, *padded]))))
    sections.append(Section(f"{gain.program} with {gain.compiler}", gain.how))
    report.write(file, sections, INTRODUCTION)


def read(text: str) -> list[Row]:
    """Return the rows of the table in the text of docs/gains.md."""
    return [Row(*row) for row in _rows(text, _TABLE)]


def _rows(text: str, title: str) -> list[tuple[str, ...]]:
    found = re.search(rf"^## {title}\n+((?:\|.*\n)+)", text, re.MULTILINE)
    lines: Iterable[str] = found[1].splitlines()[2:] if found else ()
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
