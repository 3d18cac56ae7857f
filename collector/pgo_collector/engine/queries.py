"""Queries that workers answer about stored profiles: tables, functions, timelines, flame graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from errno import EIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pprof_merge import (
    GROUPINGS,
    Budget,
    FlameGraph,
    FlameView,
    FunctionUse,
    Grouping,
    Header,
    Int64s,
    LatencyRange,
    Profile,
    Timeline,
    TopTable,
    ValueType,
    WeighedStacks,
    count_samples,
    default_column,
    focus_latency,
    trim_after,
)

from pgo_collector.engine.merge_inputs import ChosenBlobs, MergeInputs, read_merge_inputs
from pgo_collector.engine.outputs import refuse_too_large, server_budget, write_pieces
from pgo_collector.engine.packing import pack, unpack
from pgo_collector.model.facts import LeftOut

_ADVICE = "select fewer profiles, or one service in place of all"
_FLAME_GRAPH = "the flame graph: "


@dataclass(frozen=True, slots=True)
class TableResult:
    """A top table with one column, that of the sample type, and the number of profiles in it.

    `samples` is the number of samples that a profiler took for it; None if that isn't known. Type and table
    are None if there was nothing to merge.
    """

    sample_type: ValueType | None
    table: TopTable | None
    profiles: int
    samples: int | None
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class UseResult:
    """The use of one function for one sample type, and the number of profiles in it.

    Type and use are None if there was nothing to merge.
    """

    sample_type: ValueType | None
    use: FunctionUse | None
    profiles: int
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class TimelineResult:
    """Total, flat and cum of one sample type in each step: `steps` is (n_steps, 3) int64.

    Type and steps are None if there was nothing to merge.
    """

    sample_type: ValueType | None
    steps: Int64s | None
    profiles: int
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class StacksResult:
    """The sample type of a merge's weighed stacks, which are in a file.

    The type is None, and there is no file, if there was nothing to merge.
    """

    sample_type: ValueType | None
    profiles: int
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class FlameGraphResult:
    """The flame graph of one sample type; type and graph are None if there was nothing to merge."""

    sample_type: ValueType | None
    graph: FlameGraph | None
    profiles: int
    left_out: tuple[LeftOut, ...]


@trim_after
def table_blobs(
    chosen: ChosenBlobs, grouping: Grouping, latencies: LatencyRange, budget: Budget
) -> TableResult:
    """Return the top table of these latencies of the merge of blobs.

    It is for the sample type that `go tool pprof` shows. Raises AnswerTooLarge.
    """
    inputs = read_merge_inputs(chosen)
    merged = _merged(inputs, latencies)
    if merged is None:
        return TableResult(None, None, 0, None, inputs.left_out)
    with refuse_too_large("the table: "):
        table = TopTable.of(merged.profile, GROUPINGS[grouping], column=merged.column, budget=budget)
        server_budget(budget).check(table.nbytes, _ADVICE)
    samples = count_samples(merged.profile, merged.column)
    return TableResult(merged.sample_type, table, len(inputs.numbers), samples, inputs.left_out)


@trim_after
def use_blobs(chosen: ChosenBlobs, name: str, latencies: LatencyRange, budget: Budget) -> UseResult:
    """Return the use of the functions with a name in these latencies of the merge of blobs.

    It is for the sample type that `go tool pprof` shows. Raises AnswerTooLarge.
    """
    inputs = read_merge_inputs(chosen)
    merged = _merged(inputs, latencies)
    if merged is None:
        return UseResult(None, None, 0, inputs.left_out)
    with refuse_too_large("the function: "):
        use = FunctionUse.of(merged.profile, name, merged.column, budget)
        server_budget(budget).check(use.nbytes, _ADVICE)
    return UseResult(merged.sample_type, use, len(inputs.numbers), inputs.left_out)


@trim_after
def time_blobs(
    chosen: ChosenBlobs,
    steps: Mapping[str, int],
    subject: tuple[Grouping, str],
    latencies: LatencyRange,
    budget: Budget,
) -> TimelineResult:
    """Return how much a function, package or file takes of these latencies, step by step.

    `steps` has the number of each blob's step, by the blob's name, and `subject` what is asked for.
    Raises AnswerTooLarge.
    """
    inputs = read_merge_inputs(chosen)
    if not len(inputs.numbers):
        return TimelineResult(None, None, 0, inputs.left_out)
    grouping, name = subject
    name_of = GROUPINGS[grouping]
    with refuse_too_large("the timeline: "):
        found = Timeline.of(
            inputs.collection,
            inputs.numbers.tolist(),
            [steps[blob] for blob in inputs.names],
            lambda frame: name_of(frame) == name,
            budget,
            latencies=latencies,
        )
    column = _column(found.header)
    if column is None:
        return TimelineResult(None, None, 0, inputs.left_out)
    values = np.stack([part[:, column] for part in (found.total, found.flat, found.cum)], axis=1)
    return TimelineResult(found.header.sample_types[column], values, len(inputs.numbers), inputs.left_out)


@trim_after
def weigh_blobs(chosen: ChosenBlobs, latencies: LatencyRange, part: Path, budget: Budget) -> StacksResult:
    """Write the stacks of these latencies of the merge of blobs to the file `part`.

    They are the base for `draw_blobs`, perhaps in another worker, and don't pass through the server's
    process. Their values are of the sample type that `go tool pprof` shows. Raises AnswerTooLarge or OSError.
    """
    inputs = read_merge_inputs(chosen)
    sample_type, stacks = _weighed(inputs, latencies, budget)
    if stacks is None:
        return StacksResult(None, 0, inputs.left_out)
    write_pieces(part, map(bytes, pack(stacks)))
    return StacksResult(sample_type, len(inputs.numbers), inputs.left_out)


@trim_after
def draw_blobs(
    chosen: ChosenBlobs, latencies: LatencyRange, view: FlameView, base: Path | None, budget: Budget
) -> FlameGraphResult:
    """Return the flame graph of these latencies of the merge of blobs.

    It is compared with the stacks in the file `base` if one is given. `weigh_blobs` has written that file.
    Raises AnswerTooLarge or OSError.
    """
    inputs = read_merge_inputs(chosen)
    sample_type, stacks = _weighed(inputs, latencies, budget)
    if stacks is None:
        return FlameGraphResult(None, None, 0, inputs.left_out)
    with refuse_too_large(_FLAME_GRAPH):
        if base is not None:
            stacks = stacks.beside(read_stacks(base), budget)
        graph = FlameGraph.of(stacks, view)
        server_budget(budget).check(sum(map(len, {*graph.names})), _ADVICE)
    return FlameGraphResult(sample_type, graph, len(inputs.numbers), inputs.left_out)


def _weighed(
    inputs: MergeInputs, latencies: LatencyRange, budget: Budget
) -> tuple[ValueType | None, WeighedStacks | None]:
    merged = _merged(inputs, latencies)
    if merged is None:
        return None, None
    with refuse_too_large(_FLAME_GRAPH):
        return merged.sample_type, WeighedStacks.of(merged.profile, merged.column, budget)


class _Merged(NamedTuple):
    """A merge, or the part of it with some latencies, and the column that `go tool pprof` shows."""

    profile: Profile
    column: int

    @property
    def sample_type(self) -> ValueType:
        """Return what the values in the column measure."""
        return self.profile.header.sample_types[self.column]


def _merged(inputs: MergeInputs, latencies: LatencyRange) -> _Merged | None:
    """Return the merge of a selection; None if there is nothing to merge, or nothing is measured."""
    if not len(inputs.numbers):
        return None
    profile = inputs.merge()
    column = _column(profile.header)
    return None if column is None else _Merged(focus_latency(profile, latencies), column)


def read_stacks(part: Path) -> WeighedStacks:
    """Return the stacks in a file that another worker wrote. Raises OSError, also if the file is damaged."""
    with part.open("rb") as file:
        mapped = mmap(file.fileno(), 0, access=ACCESS_READ)  # stays mapped as long as its arrays are used
    unpacked = unpack(memoryview(mapped))
    if unpacked is None or not isinstance(unpacked.content, WeighedStacks):
        raise OSError(EIO, "the stacks of the base are damaged")
    return unpacked.content


def _column(header: Header) -> int | None:
    """Return the column that `go tool pprof` shows; None for a profile without sample types."""
    return default_column(header) if header.sample_types else None
