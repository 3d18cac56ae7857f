"""docs/gains.md: a table of all programs, and how each was measured; written by the run that measures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median_low
from typing import NamedTuple

from tests.bench import report
from tests.bench.report import Section
from tests.gains.costs import Compared

FILE = Path(__file__).parents[2] / "docs" / "gains.md"
# From this many instructions on, they are given in millions: those of a transaction are fewer.
_MILLIONS = 10_000_000
NONE, OURS, WITH_PROGRAM, INSTRUMENTED = "none", "ours", "ours, with the program", "instrumented"
INTRODUCTION = Path(__file__).with_name("introduction.txt").read_text()
_TABLE = "All programs"
_HEAD = (
    "program",
    "compiler",
    "profile",
    "instructions",
    "fewer",
    "of what instrumented saves",
    "CPU",
    "CPU without ÷ with",
    "command",
)


class Row(NamedTuple):
    """A row of the table, as text."""

    program: str
    compiler: str
    profile: str
    instructions: str
    fewer: str
    share: str
    cpu: str
    ratio: str
    command: str


class Gain(NamedTuple):
    """The measurements of a program: the costs of its builds by their profiles, the first without one.

    `counted` has the executed instructions of the builds with each profile, or nothing. `how` is the text on
    how it was measured.
    """

    program: str
    compiler: str
    command: str
    counted: Mapping[str, Sequence[int]]
    timed: Mapping[str, Compared]
    how: str

    def rows(self) -> list[Row]:
        """Return the rows of the table."""
        return [
            Row(self.program, self.compiler, profile, *self._instructions(profile), *self._cpu(profile), code)
            for profile in self.timed
            for code in [f"`{self.command}`"]
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


def _place(row: Row) -> tuple[str, str]:
    return row.program, row.compiler


def write(file: Path, gain: Gain) -> None:
    """Write the rows of a program with a compiler in place of the old ones, and the section about them."""
    rows = gain.rows()
    measured = {row[:2] for row in rows}
    kept = [row for row in read(file.read_text() if file.exists() else "") if row[:2] not in measured]
    every: list[Row] = sorted([*kept, *rows], key=_place)
    table = report.table(_HEAD, every)
    sections = [Section(_TABLE, table), Section(f"{gain.program} with {gain.compiler}", gain.how)]
    report.write(file, sections, INTRODUCTION)


def read(text: str) -> list[Row]:
    """Return the rows of the table in the text of docs/gains.md."""
    found = re.search(rf"^## {_TABLE}\n+((?:\|.*\n)+)", text, re.MULTILINE)
    lines: Iterable[str] = found[1].splitlines()[2:] if found else ()
    cells: Sequence[list[str]] = [line.strip("|").split("|") for line in lines]
    return [Row(*(cell.strip() for cell in row)) for row in cells]
