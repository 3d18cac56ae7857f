"""docs/benchmarks.md: a section for each table, written again by the run that measures it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bench.measure import Cost

FILE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
_INTRODUCTION = """# Benchmarks

`make bench` writes this page. It measures our programs and Go's in one run, in turns, so that other load on
the machine affects both. Each number is a median. A ratio is Go's cost divided by ours: above 1, ours costs
less. CPU is the time of all cores together; memory is the highest that a process had at once. "Asked" is
our own target.
"""


class Section(NamedTuple):
    """A section of docs/benchmarks.md; `body` is Markdown."""

    title: str
    body: str


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; its first column has words, the others numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def ratio(theirs: float, ours: float) -> str:
    """Return a ratio to about three digits, as text."""
    value = theirs / ours
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def seconds(value: float) -> str:
    """Return a duration as text, in ms if it is short."""
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.1f} ms" if value < 0.1 else f"{value:.3f} s"


def ratios(theirs: Cost, ours: Cost) -> list[str]:
    """Return the ratios of CPU time, wall-clock time and memory, as text."""
    return [
        ratio(theirs.cpu, ours.cpu),
        ratio(theirs.wall, ours.wall),
        ratio(theirs.memory, ours.memory),
    ]


def figures(cost: Cost) -> list[str]:
    """Return CPU time, wall-clock time and memory, as text."""
    return [seconds(cost.cpu), seconds(cost.wall), f"{cost.memory:.0f} MiB"]


def write(file: Path, sections: Iterable[Section], introduction: str = _INTRODUCTION) -> None:
    """Write sections in place of those with the same titles, or at the end; others stay as they are."""
    old = file.read_text().split("\n## ")[1:] if file.exists() else []
    bodies = {title: body.strip() for title, _, body in (section.partition("\n") for section in old)}
    bodies.update(sections)
    parts = [f"## {title}\n\n{body}\n" for title, body in bodies.items()]
    file.write_text("\n".join([introduction, *parts]))
