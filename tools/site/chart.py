"""Draw docs/benchmarks.svg, what a merge costs beside Go's tools, docs/gains.svg, what programs gain, and
docs/gains-samples.svg, how that grows with the samples.

They are drawn from the tables of the pages. `make docs` runs this; a test fails where a committed chart is
not the one that the tables give.
"""

from __future__ import annotations

import html
import math
import re
from pathlib import Path
from typing import NamedTuple, TypeVar

DOCS = Path(__file__).parents[2] / "docs"
TABLES = DOCS / "benchmarks.md"
CHART = DOCS / "benchmarks.svg"
GAINS = DOCS / "gains.md"
GAINS_CHART = DOCS / "gains.svg"
SAMPLES_CHART = DOCS / "gains-samples.svg"

_WIDTH = 720
_MARGIN = 20
_LABELS = 128  # the column left of the bars
_LONGEST_BAR = 430
_PANEL_HEIGHT = 78
_BAR_HEIGHT = 18
_OURS, _THEIRS, _LESS_OF_OURS, _MOST_OF_OURS = "#2f6fb3", "#b9b7ae", "#8db3d9", "#1d4674"
# The card brings its own background, so that the text is as readable on a dark page as on a white one.
_CARD, _EDGE, _TEXT, _FAINT = "#fcfcfa", "#dcdbd5", "#1b1f2a", "#555b66"
_FACTORS = {"ms": 0.001, "s": 1.0, "MiB": 1.0}
# Of docs/gains.md: the row without a profile, which has no bar; the bars of the others, and where they begin.
_NO_PROFILE = "none"
_GAIN_COLUMNS = ("program", "compiler", "profile")
_GAIN_COLOURS = {
    "ours": _LESS_OF_OURS,
    "ours, with the program": _OURS,
    "ours, and BOLT": _MOST_OF_OURS,
    "instrumented": _THEIRS,
}
_GAIN_LABELS = 190
_LONGEST_GAIN = 200
# The lines of the gain by samples: their colours, and the place of their frame.
_LINE_COLOURS = ("#2f6fb3", "#b3592f", "#3f8a4f", "#7a4fa3", "#8a7a1f")
_PLOT_LEFT, _PLOT_RIGHT, _PLOT_HEIGHT = 70, 520, 260

Entry = TypeVar("Entry")


class _Saved(NamedTuple):
    """The CPU time that a build saves, in per cent: median and quartiles; and the words for it."""

    middle: float
    low: float
    high: float
    words: str


class Bar(NamedTuple):
    """A bar: who it is about, and the column that has its length."""

    name: str
    column: str


class Panel(NamedTuple):
    """A pair of bars, from one row of the table in one section of docs/benchmarks.md."""

    title: str
    section: str
    row: str
    ours: Bar
    theirs: Bar


PANELS = (
    Panel(
        "A collector has 10,000 profiles, gets one more and merges all: CPU time",
        "Merges over HTTP",
        "one more is submitted, then all are merged: pprof",
        Bar("pgo-collector", "ours: CPU"),
        Bar("as pgo-fleet does", "pgo-fleet's way: CPU"),
    ),
    Panel(
        "One command merges 2,000 files: CPU time",
        "Cold: whole processes",
        "2,000",
        Bar("pprof-merge", "ours: CPU"),
        Bar("Go's pprof", "Go: CPU"),
    ),
    Panel(
        "One command merges 10 files: CPU time",
        "Cold: whole processes",
        "10",
        Bar("pprof-merge", "ours: CPU"),
        Bar("Go's pprof", "Go: CPU"),
    ),
    Panel(
        "10,000 files are merged: peak memory",
        "Memory",
        "real",
        Bar("pprof-merge", "ours at 10,000"),
        Bar("as pgo-fleet does", "Go at 10,000"),
    ),
)


def chart(tables: str) -> str:
    """Return the chart as SVG; `tables` is the text of docs/benchmarks.md.

    Raises ValueError, which names what is missing, if a section, row or column is not there.
    """
    sections = dict(part.split("\n", 1) for part in tables.split("\n## ")[1:])
    parts, top = [], _MARGIN
    for panel in PANELS:
        parts.append(_panel(panel, _row(panel, sections), top))
        top += _PANEL_HEIGHT
    for line in sorted({_machine(sections[panel.section]) for panel in PANELS}):
        parts.append(_text(_MARGIN, top + 12, line, fill=_FAINT, size=12))
        top += 16
    return _card("What a merge costs: pgo-collector beside Go's tools", "docs/benchmarks.md", parts, top)


def gains_chart(page: str) -> str:
    """Return the chart of what programs gain as SVG; `page` is the text of docs/gains.md.

    Raises ValueError, which names what is missing, if the table lacks a column.
    """
    sections = dict(part.split("\n", 1) for part in page.split("\n## ")[1:])
    head, _, *rows = _lines(_found("docs/gains.md", sections, "All programs"))
    cells = [dict(zip(head, row, strict=True)) for row in rows]
    groups: dict[str, list[dict[str, str]]] = {}
    for row in cells:
        program, compiler, profile = (_found("docs/gains.md", row, column) for column in _GAIN_COLUMNS)
        if profile != _NO_PROFILE:
            groups.setdefault(f"{program}, {compiler}", []).append(row)
    saved = [_saved(row) for group in groups.values() for row in group]
    lowest, highest = min(0.0, *(each.low for each in saved)), max(each.high for each in saved)

    def x(percent: float) -> float:
        return _GAIN_LABELS + _LONGEST_GAIN * (percent - lowest) / (highest - lowest)

    parts, top = [], _MARGIN
    for title, group in groups.items():
        parts.append(_text(_MARGIN, top + 14, title, weight="bold"))
        top += 22
        for row in group:
            gain, middle = _saved(row), top + _BAR_HEIGHT / 2
            left, right = sorted((x(0.0), x(gain.middle)))
            parts += [
                _text(_MARGIN, top + 13, row["profile"]),
                _bar(round(left), top, max(1.5, right - left), _GAIN_COLOURS[row["profile"]]),
                _text(round(max(right, x(gain.high)) + 8), top + 13, gain.words),
                f'<path d="M{x(gain.low):.1f} {middle}H{x(gain.high):.1f}" stroke="{_TEXT}"/>',
                *(
                    f'<path d="M{x(end):.1f} {middle - 4}v8" stroke="{_TEXT}"/>'
                    for end in (gain.low, gain.high)
                ),
            ]
            top += _BAR_HEIGHT + 4
        top += 12
    return _card("What programs gain from profiles", "docs/gains.md", parts, top)


def samples_chart(page: str) -> str:
    """Return the chart of the gain by samples as SVG; `page` is the text of docs/gains.md.

    Raises ValueError, which names what is missing, if the table lacks a column.
    """
    sections = dict(part.split("\n", 1) for part in page.split("\n## ")[1:])
    head, _, *rows = _lines(_found("docs/gains.md", sections, "How many samples are enough"))
    lines: dict[str, list[tuple[float, float]]] = {}
    for cells in rows:
        row = dict(zip(head, cells, strict=True))
        samples, share = (_found("docs/gains.md", row, name) for name in ("samples", "of the gain with all"))
        at = math.log10(int(samples.replace(",", ""))), float(share.split()[0])
        lines.setdefault(_found("docs/gains.md", row, "program"), []).append(at)
    powers = [power for line in lines.values() for power, _ in line]
    first, last = math.floor(min(powers)), math.ceil(max(powers))
    low = min(0.0, *(share for line in lines.values() for _, share in line))
    high = max(100.0, *(share for line in lines.values() for _, share in line))
    bottom = _MARGIN + 20 + _PLOT_HEIGHT

    def x(power: float) -> float:
        return _PLOT_LEFT + (_PLOT_RIGHT - _PLOT_LEFT) * (power - first) / (last - first)

    def y(share: float) -> float:
        return bottom - _PLOT_HEIGHT * (share - low) / (high - low)

    parts = [_text(_MARGIN, _MARGIN + 10, "Gain, of that with all samples", weight="bold")]
    for mark in (0.0, 50.0, 100.0):
        parts += [
            _text(_MARGIN, round(y(mark) + 4), f"{mark:.0f} %", fill=_FAINT, size=12),
            f'<path d="M{_PLOT_LEFT} {y(mark):.1f}H{_PLOT_RIGHT}" stroke="{_EDGE}"/>',
        ]
    for power in range(first, last + 1):
        parts.append(_text(round(x(power) - 12), bottom + 20, f"{10**power:,}", fill=_FAINT, size=12))
    for number, (title, line) in enumerate(lines.items()):
        colour = _LINE_COLOURS[number % len(_LINE_COLOURS)]
        places = " ".join(f"{x(power):.1f},{y(share):.1f}" for power, share in line)
        top = _MARGIN + 40 + 22 * number
        parts += [
            f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>',
            *(
                f'<circle cx="{x(power):.1f}" cy="{y(share):.1f}" r="3" fill="{colour}"/>'
                for power, share in line
            ),
            _text(_PLOT_RIGHT + 24, top, title, weight="bold", fill=colour),
        ]
    parts.append(_text(_PLOT_LEFT, bottom + 40, "samples", fill=_FAINT, size=12))
    return _card("How the gain grows with the samples", "docs/gains.md", parts, bottom + 46)


def _saved(row: dict[str, str]) -> _Saved:
    """Return what a build saves; its words have the instructions, too, if they were counted."""
    ratio, fewer = (
        _found("docs/gains.md", row, name) for name in ("CPU without ÷ with", "instructions saved")
    )
    middle, low, high = (100 * (1 - 1 / float(number)) for number in re.findall(r"[\d.]+", ratio))
    words = _less(middle, "less CPU time", ".0f")
    if fewer.strip():
        words += ", " + _less(float(fewer.split()[0]), "fewer instructions", ".1f")
    return _Saved(middle, low, high, words)


def _less(percent: float, saved: str, digits: str) -> str:
    """Return a saving in words: with `more` in place of the first of them if nothing is saved."""
    return f"{abs(percent):{digits}} % {saved if percent >= 0 else 'more ' + saved.split(maxsplit=1)[1]}"


def _card(title: str, source: str, parts: list[str], top: int) -> str:
    """Return the SVG with these parts on a card, `top` pixels high without its margin."""
    height = top + _MARGIN
    drawn = "\n".join(parts)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" \
width="{_WIDTH}" height="{height}" role="img" font-family="system-ui, sans-serif">
<title>{title}</title>
<!-- Made by `make docs` from {source}; what is changed here by hand is lost. -->
<rect x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="8" fill="{_CARD}" stroke="{_EDGE}"/>
{drawn}
</svg>
"""


def _row(panel: Panel, sections: dict[str, str]) -> dict[str, str]:
    """Return the cells of a panel's row by the heads of their columns."""
    section = _found("docs/benchmarks.md", sections, panel.section)
    head, *rows = _lines(section)
    cells = _found(panel.section, {row[0]: dict(zip(head, row, strict=False)) for row in rows}, panel.row)
    for bar in (panel.ours, panel.theirs):
        _found(panel.section, cells, bar.column)
    return cells


def _lines(section: str) -> list[list[str]]:
    """Return the cells of a table by line, its head and the line below it included."""
    return [line.split(" | ") for line in re.findall(r"^\| (.*) \|$", section, re.MULTILINE)]


def _found(where: str, entries: dict[str, Entry], name: str) -> Entry:
    if name not in entries:
        raise ValueError(f"{where!r} has no {name!r}: change PANELS in tools/site/chart.py to what it has")
    return entries[name]


def _machine(section: str) -> str:
    """Return the day, processor, cores and Go version of a section's measurement."""
    found = re.search(r"^([\d-]+): (.*?, \d+ cores), .*; go([\d.]+\d)\.", section, re.MULTILINE)
    if found is None:
        raise ValueError("a section does not end with the machine that it was measured on")
    day, processor, go = found.groups()
    return f"Shorter is better. Measured on {day}: {processor}, Go {go}."


def _panel(panel: Panel, cells: dict[str, str], top: int) -> str:
    bars = ((panel.ours, _OURS, "bold"), (panel.theirs, _THEIRS, "normal"))
    longest = max(_size(cells[bar.column]) for bar, _, _ in bars)
    parts = [_text(_MARGIN, top + 14, panel.title, weight="bold")]
    for number, (bar, colour, weight) in enumerate(bars):
        y = top + 24 + number * (_BAR_HEIGHT + 4)
        width = max(1.5, _LONGEST_BAR * _size(cells[bar.column]) / longest)
        x = _MARGIN + _LABELS
        parts += [
            _text(_MARGIN, y + 13, bar.name, weight=weight),
            _bar(x, y, width, colour),
            _text(round(x + width + 8), y + 13, cells[bar.column], weight=weight),
        ]
    return "\n".join(parts)


def _size(cell: str) -> float:
    """Return a figure such as `65.5 ms`, in seconds or MiB."""
    value, unit = cell.split()
    return float(value.replace(",", "")) * _FACTORS[unit]


def _bar(x: int, y: int, width: float, colour: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{_BAR_HEIGHT}" rx="2" fill="{colour}"/>'


def _text(x: int, y: int, text: str, *, weight: str = "normal", fill: str = _TEXT, size: int = 13) -> str:
    attributes = f'x="{x}" y="{y}" fill="{fill}" font-size="{size}" font-weight="{weight}"'
    return f"<text {attributes}>{html.escape(text, quote=False)}</text>"


if __name__ == "__main__":
    CHART.write_text(chart(TABLES.read_text()))
    GAINS_CHART.write_text(gains_chart(GAINS.read_text()))
    SAMPLES_CHART.write_text(samples_chart(GAINS.read_text()))
