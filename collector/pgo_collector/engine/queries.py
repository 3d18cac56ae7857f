"""What worker processes find out about the stored profiles of a service: tables, timelines, flame graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from errno import EIO
from mmap import ACCESS_READ, mmap
from pathlib import Path

import numpy as np
from pprof_merge import (
    GROUPINGS,
    Budget,
    FlameGraph,
    FlameView,
    Grouping,
    Header,
    Int64s,
    Timeline,
    TopTable,
    ValueType,
    WeighedStacks,
    default_column,
    trim_after,
)

from pgo_collector.engine.merge_inputs import ChosenBlobs, MergeInputs, collect
from pgo_collector.engine.outputs import for_the_server, refusing_large, write_pieces
from pgo_collector.engine.packing import pack, unpack
from pgo_collector.model.facts import LeftOut

_ADVICE = "select fewer profiles, or of a fleet one service"
_FLAME_GRAPH = "the flame graph: "


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
    """The sample type of a merge's stacks with their values, which are in a file; None if there is none to
    take, and no file.
    """

    sample_type: ValueType | None
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
def table_blobs(chosen: ChosenBlobs, grouping: Grouping, budget: Budget) -> Tabled:
    """The table of the merge of some blobs, for the sample type that `go tool pprof` shows.

    Raises AnswerTooLarge.
    """
    collected = collect(chosen)
    if not len(collected.numbers):
        return Tabled(None, None, 0, collected.left_out)
    profile = collected.merge()
    column = _column(profile.header)
    if column is None:
        return Tabled(None, None, 0, collected.left_out)
    with refusing_large("the table: "):
        table = TopTable.of(profile, GROUPINGS[grouping], column=column, budget=budget)
        for_the_server(budget).check(table.nbytes, _ADVICE)
    return Tabled(profile.header.sample_types[column], table, len(collected.numbers), collected.left_out)


@trim_after
def time_blobs(
    chosen: ChosenBlobs, steps: Mapping[str, int], grouping: Grouping, name: str, budget: Budget
) -> Timed:
    """How much of each step a function, package or file takes; `steps` has that of each blob.

    Raises AnswerTooLarge.
    """
    collected = collect(chosen)
    if not len(collected.numbers):
        return Timed(None, None, 0, collected.left_out)
    name_of = GROUPINGS[grouping]
    with refusing_large("the timeline: "):
        found = Timeline.of(
            collected.collection,
            collected.numbers.tolist(),
            [steps[blob] for blob in collected.blobs],
            lambda frame: name_of(frame) == name,
            budget,
        )
    column = _column(found.header)
    if column is None:
        return Timed(None, None, 0, collected.left_out)
    values = np.stack([part[:, column] for part in (found.total, found.flat, found.cum)], axis=1)
    return Timed(found.header.sample_types[column], values, len(collected.numbers), collected.left_out)


@trim_after
def weigh_blobs(chosen: ChosenBlobs, part: Path, budget: Budget) -> Weighed:
    """The stacks of the merge of some blobs, for the sample type that `go tool pprof` shows, in the file
    `part`: for `draw_blobs`, maybe in another worker. They don't pass through the server's process.

    Raises AnswerTooLarge or OSError.
    """
    collected = collect(chosen)
    sample_type, stacks = _weighed(collected, budget)
    if stacks is None:
        return Weighed(None, 0, collected.left_out)
    write_pieces(part, map(bytes, pack(stacks)))
    return Weighed(sample_type, len(collected.numbers), collected.left_out)


@trim_after
def draw_blobs(chosen: ChosenBlobs, view: FlameView, base: Path | None, budget: Budget) -> Drawn:
    """The flame graph of the merge of some blobs, beside that of a base if there is one, which `weigh_blobs`
    has put into a file.

    Raises AnswerTooLarge or OSError.
    """
    collected = collect(chosen)
    sample_type, stacks = _weighed(collected, budget)
    if stacks is None:
        return Drawn(None, None, 0, collected.left_out)
    with refusing_large(_FLAME_GRAPH):
        if base is not None:
            stacks = stacks.beside(_read_stacks(base), budget)
        graph = FlameGraph.of(stacks, view)
        for_the_server(budget).check(sum(map(len, {*graph.names})), _ADVICE)
    return Drawn(sample_type, graph, len(collected.numbers), collected.left_out)


def _weighed(collected: MergeInputs, budget: Budget) -> tuple[ValueType | None, WeighedStacks | None]:
    if not len(collected.numbers):
        return None, None
    profile = collected.merge()
    column = _column(profile.header)
    if column is None:
        return None, None
    with refusing_large(_FLAME_GRAPH):
        return profile.header.sample_types[column], WeighedStacks.of(profile, column, budget)


def _read_stacks(part: Path) -> WeighedStacks:
    """Raises OSError, also where the file isn't what was written: another process has done that."""
    with part.open("rb") as file:
        mapped = mmap(file.fileno(), 0, access=ACCESS_READ)  # open as long as the arrays that lie there
    unpacked = unpack(memoryview(mapped))
    if unpacked is None or not isinstance(unpacked.content, WeighedStacks):
        raise OSError(EIO, "the stacks of the base are damaged")
    return unpacked.content


def _column(header: Header) -> int | None:
    """The column that counts; None for a profile without any, which measures nothing."""
    return default_column(header) if header.sample_types else None
