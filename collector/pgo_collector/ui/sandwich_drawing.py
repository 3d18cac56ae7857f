"""Drawings of one function between the trees of its callers, above it, and of its callees, below it.

They are drawn by hand, as flame graphs are: see `flame_drawing`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape
from typing import NamedTuple

from pprof_merge.analysis import FlameGraph, share_of

from pgo_collector.engine.views import Around
from pgo_collector.queries.answers import Function
from pgo_collector.ui.amounts import amount, cut, percent, short
from pgo_collector.ui.flame_drawing import ROW_HEIGHT, colour_of, label_of, package_or_binary
from pgo_collector.ui.links import Links, link_of_name

_MAX_TITLE = 160
# The bytes that all boxes may take on the page: names are long in links.
_MOST_BYTES = 120_000
_BOX_BYTES = 150


@dataclass(frozen=True, slots=True)
class CallBox:
    """A box: `left` and `width` are percentages of the width, `row` counts from the top.

    `link` is empty for the function itself, and for names that are too long for a link.
    """

    left: str
    width: str
    row: int
    colour: str
    link: str
    title: str
    label: str


class Sandwich(NamedTuple):
    """The boxes of a drawing, from the function outwards, and the number of its rows."""

    boxes: list[CallBox]
    rows: int

    @property
    def height(self) -> int:
        """Return the height of the drawing in pixels."""
        return self.rows * ROW_HEIGHT


def sandwich_of(around: Around, function: Function, links: Links) -> Sandwich:
    """Return the drawing of the calls around a function. Its row has the whole width."""
    title = f"{cut(function.name, _MAX_TITLE)}\n{percent(function.cum_share)}"
    own = CallBox("0", "100", 0, "all", "", title, label_of(short(function.name), 1))
    # The largest calls of both sides: a caller of a drawn call is at least as large, so it is drawn as well.
    calls = sorted(
        (
            (weight, side, box)
            for side, graph in ((-1, around.callers), (1, around.callees))
            for weight, box in _calls(graph, around.total, function, links)
        ),
        key=lambda call: (-call[0], call[2].row),
    )
    boxes, size = [own], 0
    for _, side, box in calls:
        texts = box.link, box.title, box.label
        size += _BOX_BYTES + sum(len(escape(text).encode()) for text in texts)
        if size > _MOST_BYTES:
            break
        boxes.append(replace(box, row=side * box.row))
    first = min(box.row for box in boxes)
    last = max(box.row for box in boxes)
    return Sandwich([replace(box, row=box.row - first) for box in boxes], last - first + 1)


def _calls(
    graph: FlameGraph, total: int, function: Function, links: Links
) -> Iterator[tuple[float, CallBox]]:
    """Yield the boxes of one side and their weights; `row` is the number of calls from the function."""
    starts, weights, depth = graph.starts().tolist(), graph.weight.tolist(), graph.depth.tolist()
    # The first node is the whole, and the second the function.
    for node in range(2, len(weights)):
        name, value = graph.names[node], int(graph.total[node, 0])
        share = percent(share_of(value, total))
        yield (
            weights[node],
            CallBox(
                left=f"{100 * starts[node]:.5g}",
                width=f"{100 * weights[node]:.4g}",
                row=depth[node] - 1,
                colour=colour_of(package_or_binary(name, graph.binaries[node])),
                link=link_of_name(links, "function", name),
                title=f"{cut(name, _MAX_TITLE)}\n{share}: {amount(value, function.sample_type)}",
                label=label_of(short(name), weights[node]),
            ),
        )
