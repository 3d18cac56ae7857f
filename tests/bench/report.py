"""docs/benchmarks.md: a section for each table, written anew by the run that measures it."""

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
    """`body` is Markdown."""

    title: str
    body: str


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is words, and whose others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def ratio(theirs: float, ours: float) -> str:
    """To three digits or so."""
    value = theirs / ours
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def seconds(value: float) -> str:
    """In ms if that reads better."""
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.1f} ms" if value < 0.1 else f"{value:.3f} s"


def ratios(theirs: Cost, ours: Cost) -> list[str]:
    """Of CPU, clock and memory."""
    return [ratio(*pair) for pair in zip(theirs, ours, strict=True)]


def figures(cost: Cost) -> list[str]:
    """CPU, clock and memory."""
    return [seconds(cost.cpu), seconds(cost.wall), f"{cost.memory:.0f} MiB"]


def write(file: Path, sections: Iterable[Section]) -> None:
    """Puts sections in the places of those with the same titles, or at the end; the others stay."""
    old = file.read_text().split("\n## ")[1:] if file.exists() else []
    bodies = {title: body.strip() for title, _, body in (section.partition("\n") for section in old)}
    bodies.update(sections)
    parts = [f"## {title}\n\n{body}\n" for title, body in bodies.items()]
    file.write_text("\n".join([_INTRODUCTION, *parts]))
