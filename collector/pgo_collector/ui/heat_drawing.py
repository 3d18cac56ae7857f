"""Drawings of heat maps: rows of latencies, the longest first, with a cell for each time, and a bar.

They are drawn by hand, as a table whose cells are links: docs/ui.md has the libraries that were tried, under
"How they are drawn".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

from pgo_collector.http.openapi import BASE
from pgo_collector.model.selection import Selection
from pgo_collector.model.times import format_time
from pgo_collector.queries.answers import HeatMap, HeatPoint, Histogram
from pgo_collector.queries.timelines import STEPS
from pgo_collector.ui.amounts import count, nanos
from pgo_collector.ui.links import Links
from pgo_collector.ui.plots import moment

ROW_HEIGHT = 22  # pixels; a cell is one pixel lower
# More steps than this share columns: a page has at most this many cells a row.
_MAX_COLUMNS = 120
# The bytes that all cells may take on the page: each has a link with the page's selection.
_CELLS_BYTES = 350_000
_CELL_BYTES = 230
_COLOURS = 8
# A latency in ns, for the length of a link.
_LONG = 1 << 32


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: `left` and `width` are percentages of the row's width, `link` leads to its flame graph."""

    left: str
    width: str
    colour: str
    title: str
    link: str


@dataclass(frozen=True, slots=True)
class Row:
    """A bucket of latencies: its cells, and its part of the histogram.

    `bar` is the width of its bar, in percent of the longest one.
    """

    begin: str
    end: str
    link: str
    cells: list[Cell]
    count: int
    share: float
    bar: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A heat map with its histogram.

    `begin` and `end` are its first and its last moment, as parameters; `times` are the first, the middle and
    the last column. `legend` has the smallest count of each colour in
    use.
    """

    rows: list[Row]
    begin: str
    end: str
    times: list[str]
    legend: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Pair:
    """A bucket in two histograms: the shares of the events, and the widths of two bars in percent.

    `link` leads to the difference of the flame graphs of this bucket.
    """

    begin: str
    link: str
    share: float
    base_share: float
    difference: float
    bar: str
    base_bar: str


@dataclass(frozen=True, slots=True)
class _Column:
    """One or several steps: from `begin` to `end`, in ns since 1970, and the events in each bucket."""

    begin: int
    end: int
    counts: Mapping[int, int]


def drawing_of(heat: HeatMap, histogram: Histogram, selection: Selection, links: Links) -> Drawing:
    """Return the drawing of a heat map and of the histogram of the same selection."""
    columns = _columns(heat, selection, links)
    most = max((count_ for column in columns for count_ in column.counts.values()), default=0)
    highest = max((bucket.count for bucket in histogram.buckets), default=1)
    times = [moment(format_time(column.begin)) for column in columns]
    return Drawing(
        rows=[
            Row(
                begin=nanos(bucket.from_ns),
                end=nanos(bucket.to_ns),
                link=links.to("", **_range(bucket.from_ns, bucket.to_ns)),
                cells=_cells(columns, bucket.from_ns, bucket.to_ns, most, links),
                count=bucket.count,
                share=bucket.share,
                bar=f"{100 * bucket.count / max(highest, 1):.4g}",
            )
            for bucket in reversed(histogram.buckets)
        ],
        begin=format_time(columns[0].begin),
        end=format_time(columns[-1].end),
        times=[times[0], *([times[len(times) // 2]] if len(times) > 2 else []), times[-1]],
        legend=_legend(most),
    )


def _columns(heat: HeatMap, selection: Selection, links: Links) -> list[_Column]:
    """Return the columns of a heat map, no more of them than the page has room for."""
    together = math.ceil(len(heat.points) / _MAX_COLUMNS)
    while True:
        columns = _columns_of(heat, selection, together)
        link = _link(columns[0], _LONG, 2 * _LONG, links)
        room = _CELLS_BYTES // (_CELL_BYTES + len(escape(link)))
        if len(columns) == 1 or sum(len(column.counts) for column in columns) <= room:
            return columns
        together *= 2


def _columns_of(heat: HeatMap, selection: Selection, together: int) -> list[_Column]:
    """Return the columns, each of `together` steps, within the selection's time."""
    width = STEPS[heat.step] * together
    columns = []
    for at in range(0, len(heat.points), together):
        begin = _nanos_of(heat.points[at].time)
        first = begin if selection.begin is None else max(begin, selection.begin)
        last = begin + width if selection.end is None else min(begin + width, selection.end)
        columns.append(_Column(first, last, _sums(heat.points[at : at + together])))
    return columns


def _sums(points: Sequence[HeatPoint]) -> dict[int, int]:
    sums: dict[int, int] = {}
    for cell in (cell for point in points for cell in point.buckets):
        sums[cell.from_ns] = sums.get(cell.from_ns, 0) + cell.count
    return sums


def _cells(columns: Sequence[_Column], begin: int, end: int, most: int, links: Links) -> list[Cell]:
    """Return the cells with an event in the bucket from `begin` to `end`, in ns."""
    width = 100 / len(columns)
    return [
        Cell(
            left=f"{at * width:.5g}",
            width=f"{width:.5g}",
            colour=f"heat{_shade(found, most)}",
            title=f"{_waits(found)} of {nanos(begin)} to {nanos(end)}\n{_moments(column)}",
            link=_link(column, begin, end, links),
        )
        for at, column in enumerate(columns)
        if (found := column.counts.get(begin, 0))
    ]


def _link(column: _Column, begin: int, end: int, links: Links) -> str:
    """Return the link to the flame graph of a cell."""
    times = {"last": None, "from": format_time(column.begin), "to": format_time(column.end)}
    return links.to("", **_range(begin, end), **times)


def _range(begin: int, end: int) -> dict[str, str]:
    """Return the parameters for the latencies of a bucket; the last one has no end that can be written."""
    return {"latency_from": f"{begin}ns"} | ({"latency_to": f"{end}ns"} if end < 1 << 63 else {})


def _waits(number: int) -> str:
    return "1 wait" if number == 1 else f"{count(number)} waits"


def _moments(column: _Column) -> str:
    return f"{moment(format_time(column.begin))} to {moment(format_time(column.end))}"


def _shade(number: int, most: int) -> int:
    """Return the colour of a count, from 1 to _COLOURS, on a logarithmic scale up to the largest count."""
    part = math.log(number) / math.log(most) if most > 1 else 1.0
    return min(1 + int(part * _COLOURS), _COLOURS)


def _legend(most: int) -> list[tuple[str, str]]:
    least: dict[int, int] = {}
    for shade in range(_COLOURS):
        number = max(math.ceil(most ** (shade / _COLOURS)), 1)
        least.setdefault(_shade(number, most), number)
    return [(f"heat{shade}", count(number)) for shade, number in sorted(least.items())] if most else []


def pairs_of(histogram: Histogram, links: Links) -> list[Pair]:
    """Return the rows of a histogram beside its base's, the longest latencies first; empty without a base."""
    if histogram.base is None or histogram.differences is None:
        return []
    base_of_links = {name: text for name, text in links.own.items() if name in BASE}
    now = {bucket.from_ns: bucket.share for bucket in histogram.buckets}
    base = {bucket.from_ns: bucket.share for bucket in histogram.base.buckets}
    widest = max((*now.values(), *base.values()), default=0.0) or 1.0
    return [
        Pair(
            begin=nanos(bucket.from_ns),
            link=links.to("diff", **base_of_links, **_range(bucket.from_ns, bucket.to_ns)),
            share=(here := now.get(bucket.from_ns, 0.0)),
            base_share=(there := base.get(bucket.from_ns, 0.0)),
            difference=bucket.difference,
            bar=f"{100 * here / widest:.4g}",
            base_bar=f"{100 * there / widest:.4g}",
        )
        for bucket in reversed(histogram.differences)
    ]


def _nanos_of(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp()) * 10**9
