"""Drawings of flame graphs: boxes in rows. `drawing.html` makes SVG of them, and `svg_file` a file.

They are drawn by hand: what draws flame graphs elsewhere needs scripts (docs/ui.md, "How they are drawn").
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple
from zlib import crc32

from pprof_merge.analysis import FlameGraph, Frame, Grouping, function_in, package_of, share_of

from pgo_collector.queries.answers import SampleType
from pgo_collector.queries.flames import Flame, key_text
from pgo_collector.ui.amounts import amount, cut, nothing_in, percent, points, short, short_line

ROW_HEIGHT = 22  # pixels; a box is one pixel lower
_COLOURS = 24
_MAX_CALLERS = 4
_MAX_PACKAGES = 10
# A box needs this share of the width to have a label; a label as wide as the graph has room for this many
# characters on a wide screen.
_MIN_LABELLED = 0.012
_CHARACTERS = 300
_MAX_LABEL = 120
_MAX_TITLE = 160
# Differences of shares from which on a box has the next stronger colour.
_STEPS = (0.0002, 0.002, 0.01, 0.03)


class Look(NamedTuple):
    """How a flame graph is drawn: what its calls stand for, and whether the whole is at the bottom.

    A graph with a base has the colours of differences, unless it `is_by_package`.
    """

    by: Grouping = "function"
    is_upright: bool = False
    is_by_package: bool = False


_PLAIN = Look()


@dataclass(frozen=True, slots=True)
class Box:
    """A box of a flame graph. `left` and `width` are percentages of the width, `row` counts from the top.

    `key` is that of the node. `label` is empty if the box is too narrow for one.
    """

    left: str
    width: str
    row: int
    colour: str
    key: str
    title: str
    label: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A flame graph to draw. `packages` are the largest packages, or files, and their colours.

    `root` is the name of the call that the graph is zoomed to, empty for the whole; `root_share` is its share
    of the whole. `matched` is the share of the stacks that the search found, in `n_matches` names. `part` is
    the share of the whole in all that was measured: less than 1 if patterns have left something out.
    """

    boxes: list[Box]
    rows: int
    packages: list[tuple[str, str]]
    root: str
    root_share: float
    matched: float
    n_matches: int
    part: float


def drawing_of(flame: Flame, search: str, look: Look = _PLAIN) -> Drawing:
    """Return the drawing of a flame graph; `search` is the text that was searched for."""
    graph = flame.graph
    sample_type = SampleType.of(flame.sample_type)
    nothing = nothing_in(int(abs(graph.size[0]).max()), flame.whole, sample_type)
    drawer = _Drawer(graph, sample_type, look, nothing)
    boxes = drawer.boxes(is_search=bool(search))
    last = max(box.row for box in boxes)
    return Drawing(
        boxes=[replace(box, row=last - box.row) for box in boxes] if look.is_upright else boxes,
        rows=last + 1,
        packages=drawer.packages(),
        root=graph.names[graph.root],
        root_share=float(graph.weight[graph.root]),
        matched=flame.matched_share,
        n_matches=graph.n_matches,
        part=share_of(int(graph.size[0, 0]), flame.whole),
    )


class _Drawer:
    def __init__(self, graph: FlameGraph, sample_type: SampleType, look: Look, nothing: str) -> None:
        self._all = nothing or "all"
        self._graph = graph
        self._look = look
        self._sample_type = sample_type
        self._whole = graph.size[0].tolist()
        self._callers = graph.chain(graph.root)[:-1]
        self._package = [_package_of(name, look.by) for name in graph.names]

    def boxes(self, *, is_search: bool) -> list[Box]:
        """Return all boxes: those of the callers of the root, then the root and all below it."""
        graph = self._graph
        root, starts, weights = graph.root, graph.starts().tolist(), graph.weight.tolist()
        boxes, depth, keys = self._caller_boxes(), graph.depth.tolist(), graph.key.tolist()
        first_row, left, scale = len(boxes), starts[root], 100 / weights[root] if weights[root] else 0.0
        matches = graph.is_match.tolist()
        below = [node for node in range(root, len(keys)) if node not in self._callers]
        for node in below:
            part = weights[node] * scale / 100 if node != root else 1.0
            colour = self._colour(node)
            if is_search:
                colour += " hit" if matches[node] else " miss"
            boxes.append(
                Box(
                    left=f"{(starts[node] - left) * scale:.6g}",
                    width=f"{weights[node] * scale:.4g}" if node != root else "100",
                    row=first_row + depth[node] - depth[root],
                    colour=colour,
                    key=key_text(keys[node]),
                    title=self._title(node),
                    label=label_of(self._name(node), part),
                )
            )
        return boxes

    def packages(self) -> list[tuple[str, str]]:
        """Return the packages with the largest flat values, and their colours."""
        graph = self._graph
        own: dict[str, float] = {}
        for node in range(graph.root, len(graph.names)):
            if node and node not in self._callers:
                package = self._package[node]
                weight = sum(map(share_of, graph.own[node].tolist(), self._whole))
                own[package] = own.get(package, 0.0) + weight
        largest = sorted(own, key=lambda package: (-own[package], package))
        return [(cut(package, 60), colour_of(package)) for package in largest[:_MAX_PACKAGES]]

    def _caller_boxes(self) -> list[Box]:
        """Return boxes for the whole and the nearest callers of the root: one a row, of the full width."""
        callers = self._callers
        skipped = callers[1:-_MAX_CALLERS]
        shown = [node for node in callers if node not in skipped]
        rows = [(node, self._name(node)) for node in shown]
        if skipped:
            rows.insert(1, (skipped[-1], f"… {len(skipped):,} more callers"))
        return [
            Box(
                "0",
                "100",
                row,
                "up",
                key_text(int(self._graph.key[node])),
                self._title(node),
                label,
            )
            for row, (node, label) in enumerate(rows)
        ]

    def _colour(self, node: int) -> str:
        if not node:
            return "all"
        if len(self._whole) > 1 and not self._look.is_by_package:
            return _shade_of(self._shares(node))
        return colour_of(self._package[node])

    def _shares(self, node: int) -> list[float]:
        return [*map(share_of, self._graph.total[node].tolist(), self._whole)]

    def _title(self, node: int) -> str:
        name, shares = self._name(node, is_short=False), self._shares(node)
        if len(shares) > 1:
            now, base = shares
            return f"{name}\n{percent(now)}, in the base {percent(base)}: {points(now - base)} points"
        total, own = int(self._graph.total[node, 0]), int(self._graph.own[node, 0])
        amounts = f"{amount(total, self._sample_type)} cumulative, {amount(own, self._sample_type)} flat"
        return f"{name}\n{percent(shares[0])}: {amounts}"

    def _name(self, node: int, *, is_short: bool = True) -> str:
        if not node:
            return self._all
        name = self._graph.names[node]
        if not is_short:
            return cut(name, _MAX_TITLE)
        return (
            short_line(name)
            if self._look.by == "line"
            else name
            if self._look.by == "package"
            else short(name)
        )


def _package_of(name: str, by: Grouping) -> str:
    """Return what a name has its colour by: the package, or the file if names are those of files."""
    if by in ("package", "file"):
        return name
    return package_of(Frame(function_in(name) if by == "line" else name, "", 0))


def label_of(name: str, part: float) -> str:
    """Return as much of a name as a box with this share of the width has room for."""
    if part < _MIN_LABELLED:
        return ""
    room = min(_MAX_LABEL, int(part * _CHARACTERS))
    return name if len(name) <= room else f"{name[: room - 1]}…"


def colour_of(package: str) -> str:
    """Return the colour of a package, the same on all pages."""
    return f"c{crc32(package.encode()) % _COLOURS}"


def _shade_of(shares: list[float]) -> str:
    """Return the colour for the difference between the share now and the share in the base."""
    now, base = shares
    strength = sum(abs(now - base) >= step for step in _STEPS)
    if not strength:
        return "same"
    return f"{'more' if now > base else 'less'}{strength}"
