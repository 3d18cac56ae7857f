"""Flame graphs as levels of bars, which Grafana draws: made from the engine's in a worker.

Calls that are too small to be in the graph are in a bar `other` of their caller.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from pprof_merge.analysis import FlameGraph

from pgo_collector.queries.grafana.profile_types import ProfileType
from pgo_collector.routes.push.connect import written
from pgo_collector.routes.pyroscope.querier_pb2 import (
    DiffResponse,
    FlameGraphDiff,
    Level,
    SelectMergeStacktracesResponse,
)
from pgo_collector.routes.pyroscope.querier_pb2 import FlameGraph as FlameGraphMessage

TOTAL, OTHER = "total", "other"
# Drawings divide values by the rate: that of values in ns, and one that they take for none.
_NANOSECONDS, _NO_RATE = 10**9, 100
_OBJECTS = {"inuse_objects", "alloc_objects", "goroutine", "samples"}


class _Bar(NamedTuple):
    """A bar of a level: its node, None for `other`; for each side its begin, its total and its own value."""

    node: int | None
    begins: list[int]
    total: list[int]
    own: list[int]


@dataclass(frozen=True, slots=True)
class Flamebearer:
    """The bars of a graph, level by level, from the left to the right.

    A bar is, for each side, its distance from the end of the bar before it, its total and its own value, and
    then the index of its name. Values are without their signs, since they are widths. `totals` are those of
    the sides, and `max_self` is the largest own value.
    """

    names: list[str]
    levels: list[list[int]]
    totals: list[int]
    max_self: int

    @classmethod
    def of(cls, graph: FlameGraph) -> Flamebearer:
        """Return the bars of a graph of one or two sides; callees stand in the order of their names."""
        called = callees_in(graph)
        own, total = graph.own_size.tolist(), graph.size.tolist()
        sides = range(len(total[0]))
        names: dict[str, int] = {TOTAL: 0}
        levels: list[list[int]] = []
        max_self = 0
        bars = [_Bar(0, [0 for _ in sides], total[0], own[0])]
        while bars:
            level: list[int] = []
            below: list[_Bar] = []
            ends = [0 for _ in sides]
            for bar in bars:
                at = [begin + value for begin, value in zip(bar.begins, bar.own, strict=True)]
                if bar.node is not None:
                    for child in sorted(called[bar.node], key=lambda child: graph.names[child]):
                        below.append(_Bar(child, at, total[child], own[child]))
                        at = [begin + value for begin, value in zip(at, total[child], strict=True)]
                rest = [bar.begins[side] + bar.total[side] - at[side] for side in sides]
                # What isn't the node's own, nor that of nodes in the graph, is that of the nodes left out.
                if any(rest):
                    below.append(_Bar(None, at, rest, rest))
                for side in sides:
                    level += (bar.begins[side] - ends[side], bar.total[side], bar.own[side])
                    ends[side] = bar.begins[side] + bar.total[side]
                level.append(names.setdefault(_name(graph, bar.node), len(names)))
                max_self = max(max_self, *bar.own)
            levels.append(level)
            bars = below
        return cls([*names], levels, total[0], max_self)


def callees_in(graph: FlameGraph) -> defaultdict[int, list[int]]:
    """Return the callees of each node; the first node is that of -1."""
    called: defaultdict[int, list[int]] = defaultdict(list)
    for node, parent in enumerate(graph.parent.tolist()):
        called[parent].append(node)
    return called


def _name(graph: FlameGraph, node: int | None) -> str:
    if node is None:
        return OTHER
    return graph.names[node] if node else TOTAL


def flame_graph_message(as_json: bool, graph: FlameGraph) -> bytes:
    """Return the answer with a flame graph; without one if its total is 0."""
    bars = Flamebearer.of(graph)
    message = SelectMergeStacktracesResponse()
    if bars.totals[0]:
        levels = [Level(values=level) for level in bars.levels]
        message.flamegraph.CopyFrom(
            FlameGraphMessage(names=bars.names, levels=levels, total=bars.totals[0], max_self=bars.max_self)
        )
    return written(message, as_json)


def diff_message(as_json: bool, graph: FlameGraph) -> bytes:
    """Return the answer with a flame graph of two sides; without one if both totals are 0."""
    bars = Flamebearer.of(graph)
    message = DiffResponse()
    if any(bars.totals):
        left, right = bars.totals
        message.flamegraph.CopyFrom(
            FlameGraphDiff(
                names=bars.names,
                levels=[Level(values=level) for level in bars.levels],
                total=left + right,
                max_self=bars.max_self,
                leftTicks=left,
                rightTicks=right,
            )
        )
    return written(message, as_json)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The sums of profiles in steps of time: from `start` on, each `step` long, both in seconds."""

    start: int
    step: int
    samples: list[int]


def flamebearer_json(measured: ProfileType, timeline: Timeline | None, graph: FlameGraph) -> bytes:
    """Return a flame graph of one or two sides as JSON of the format flamebearer, version 1."""
    bars = Flamebearer.of(graph)
    is_empty = not any(bars.totals)
    is_diff = len(bars.totals) > 1
    kind = measured.sample_type
    unit = "objects" if kind in _OBJECTS else "samples" if kind == "cpu" else measured.sample_unit
    document = {
        "version": 1,
        "flamebearer": {
            "names": [] if is_empty else bars.names,
            "levels": [] if is_empty else bars.levels,
            "numTicks": sum(bars.totals),
            "maxSelf": bars.max_self,
        },
        "metadata": {
            "format": "double" if is_diff else "single",
            "spyName": "",
            "sampleRate": _NANOSECONDS if kind == "cpu" else _NO_RATE,
            "units": unit,
            "name": kind,
        },
        "timeline": timeline
        and {
            "startTime": timeline.start,
            "samples": timeline.samples,
            "durationDelta": timeline.step,
            "watermarks": None,
        },
        "groups": None,
        "heatmap": None,
    }
    if is_diff:
        document["leftTicks"], document["rightTicks"] = bars.totals
    return json.dumps(document).encode()
