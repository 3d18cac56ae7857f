"""What worker processes find out about the stored profiles of a service: tables, timelines, flame graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from pprof_merge import Header, ValueType
from pprof_merge.flame_graph import FlameGraph, View
from pprof_merge.formats.sample_type import default_column
from pprof_merge.grouping import GROUPINGS, Grouping
from pprof_merge.heap import trim_after
from pprof_merge.profile import Int64s
from pprof_merge.timeline import Timeline
from pprof_merge.top_table import TopTable
from pprof_merge.weighed_stacks import WeighedStacks

from pgo_collector.engine.collected import Chosen, LeftOut, collect


@dataclass(frozen=True, slots=True)
class Tabled:
    """The table of one sample type, its only column, of so many profiles; None if there is none to take."""

    sample_type: ValueType | None
    table: TopTable | None
    profiles: int
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class Timed:
    """Total, flat and cum of one sample type in each step: (n_steps, 3); None if there is none to take."""

    sample_type: ValueType | None
    steps: Int64s | None
    profiles: int
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class Weighed:
    """The stacks of a merge with their values of one sample type; None if there is none to take."""

    sample_type: ValueType | None
    stacks: WeighedStacks | None
    profiles: int
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """The flame graph of one sample type; None if there is none to take."""

    sample_type: ValueType | None
    graph: FlameGraph | None
    profiles: int
    left_out: tuple[LeftOut, ...]


@trim_after
def table_blobs(chosen: Chosen, grouping: Grouping) -> Tabled:
    """The table of the merge of some blobs, for the sample type that `go tool pprof` shows."""
    collected = collect(chosen)
    if not len(collected.numbers):
        return Tabled(None, None, 0, collected.left_out)
    profile = collected.merge()
    column = _column(profile.header)
    if column is None:
        return Tabled(None, None, 0, collected.left_out)
    table = TopTable.of(profile, GROUPINGS[grouping]).only(column)
    return Tabled(profile.header.sample_types[column], table, len(collected.numbers), collected.left_out)


@trim_after
def time_blobs(chosen: Chosen, steps: Mapping[str, int], grouping: Grouping, name: str) -> Timed:
    """How much of each step a function, package or file takes; `steps` has that of each blob."""
    collected = collect(chosen)
    if not len(collected.numbers):
        return Timed(None, None, 0, collected.left_out)
    name_of = GROUPINGS[grouping]
    found = Timeline.of(
        collected.collection,
        collected.numbers.tolist(),
        [steps[blob] for blob in collected.blobs],
        lambda frame: name_of(frame) == name,
    )
    column = _column(found.header)
    if column is None:
        return Timed(None, None, 0, collected.left_out)
    values = np.stack([part[:, column] for part in (found.total, found.flat, found.cum)], axis=1)
    return Timed(found.header.sample_types[column], values, len(collected.numbers), collected.left_out)


@trim_after
def weigh_blobs(chosen: Chosen) -> Weighed:
    """The stacks of the merge of some blobs, for the sample type that `go tool pprof` shows."""
    collected = collect(chosen)
    if not len(collected.numbers):
        return Weighed(None, None, 0, collected.left_out)
    profile = collected.merge()
    column = _column(profile.header)
    if column is None:
        return Weighed(None, None, 0, collected.left_out)
    stacks = WeighedStacks.of(profile, column)
    return Weighed(profile.header.sample_types[column], stacks, len(collected.numbers), collected.left_out)


@trim_after
def draw_blobs(chosen: Chosen, view: View, base: WeighedStacks | None) -> Drawn:
    """The flame graph of the merge of some blobs, beside that of a base if there is one."""
    weighed = weigh_blobs(chosen)
    if weighed.stacks is None:
        return Drawn(None, None, 0, weighed.left_out)
    stacks = weighed.stacks if base is None else weighed.stacks.beside(base)
    graph = FlameGraph.of(stacks, view)
    return Drawn(weighed.sample_type, graph, weighed.profiles, weighed.left_out)


def _column(header: Header) -> int | None:
    """The column that counts; None for a profile without any, which measures nothing."""
    return default_column(header) if header.sample_types else None
