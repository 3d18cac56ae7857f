"""Drawings of flame graphs: boxes in rows. `drawing.html` makes SVG of them, and `svg_file` a file.

They are drawn by hand: what draws flame graphs elsewhere needs scripts (docs/ui.md, "How they are drawn").
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple
from zlib import crc32

from pprof_merge.analysis import UNKNOWN, FlameGraph, Frame, Grouping, function_in, package_of, share_of

from pgo_collector.queries.answers import SampleType
from pgo_collector.queries.flames import Flame, key_text
from pgo_collector.ui.amounts import amount, cut, nothing_in, percent, points, short, short_line

ROW_HEIGHT = 22  # pixels; a box is one pixel lower
_COLOURS = 24
# With this beginning of the checksum, hardly any two of what is in most graphs share a colour: the packages
# of Go's library, the kernel and the usual libraries of C.
_SPREAD = 101_430
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

    A graph with a base has the colours of differences, unless it `is_by_package`. If it `is_grouped`, its
    first calls are values of a label.
    """

    by: Grouping = "function"
    is_upright: bool = False
    is_by_package: bool = False
    is_grouped: bool = False


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
    """A flame graph to draw. `packages` are the widest packages, binaries or files, and their colours.

    `colours` are those of all names that are drawn. `nothing` says why there is nothing to draw, else it is
    empty.

    `root` is the name of the call that the graph is zoomed to, empty for the whole; `root_share` is its share
    of the whole. `matched` is the share of the stacks that the search found, in `n_matches` names. `part` is
    the share of the whole in all that was measured: less than 1 if patterns have left something out.
    """

    boxes: list[Box]
    rows: int
    packages: list[tuple[str, str]]
    colours: dict[str, str]
    nothing: str
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
        colours=drawer.colours(),
        nothing=nothing,
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
        self._below = [node for node in range(graph.root, len(graph.names)) if node not in self._callers]
        self._package = [self._package_of(node) for node in range(len(graph.names))]

    def boxes(self, *, is_search: bool) -> list[Box]:
        """Return all boxes: those of the callers of the root, then the root and all below it."""
        graph = self._graph
        root, starts, weights = graph.root, graph.starts().tolist(), graph.weight.tolist()
        boxes, depth, keys = self._caller_boxes(), graph.depth.tolist(), graph.key.tolist()
        first_row, left, scale = len(boxes), starts[root], 100 / weights[root] if weights[root] else 0.0
        matches = graph.is_match.tolist()
        for node in self._below:
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
        """Return the packages whose boxes are the widest together, and their colours."""
        widths: dict[str, float] = {}
        weights = self._graph.weight.tolist()
        for node in self._below:
            if package := self._package[node]:
                widths[package] = widths.get(package, 0.0) + weights[node]
        widest = sorted(widths, key=lambda package: (-widths[package], package))
        return [(cut(package, 60), colour_of(package)) for package in widest[:_MAX_PACKAGES]]

    def colours(self) -> dict[str, str]:
        """Return the colours of the packages of all names."""
        return {self._graph.names[node]: self._colour_of_package(node) for node in self._below}

    def _package_of(self, node: int) -> str:
        """Return what a call has its colour by; empty for the whole and for the value of a label."""
        graph, by = self._graph, self._look.by
        if graph.parent[node] <= (0 if self._look.is_grouped else -1):
            return ""
        if by in {"package", "file"}:
            return graph.names[node]
        name = function_in(graph.names[node]) if by == "line" else graph.names[node]
        return package_or_binary(name, graph.binaries[node])

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
        return self._colour_of_package(node)

    def _colour_of_package(self, node: int) -> str:
        return colour_of(self._package[node]) if self._package[node] else "same"

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


def package_or_binary(name: str, binary: str) -> str:
    """Return the package of a function; if it has none, as in C and the kernel, the binary that it is in."""
    package = package_of(Frame(name, "", 0))
    return binary if binary and package in {UNKNOWN, name} else package


def label_of(name: str, part: float) -> str:
    """Return as much of a name as a box with this share of the width has room for."""
    if part < _MIN_LABELLED:
        return ""
    room = min(_MAX_LABEL, int(part * _CHARACTERS))
    return name if len(name) <= room else f"{name[: room - 1]}…"


def colour_of(package: str) -> str:
    """Return the colour of a package, the same on all pages."""
    return f"c{crc32(package.encode(), _SPREAD) % _COLOURS}"


def _shade_of(shares: list[float]) -> str:
    """Return the colour for the difference between the share now and the share in the base."""
    now, base = shares
    strength = sum(abs(now - base) >= step for step in _STEPS)
    if not strength:
        return "same"
    return f"{'more' if now > base else 'less'}{strength}"
