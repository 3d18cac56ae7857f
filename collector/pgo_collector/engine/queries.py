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
    ALL_LATENCIES,
    NAMES_OF_FRAMES,
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
from pgo_collector.model.name_patterns import ALL_NAMES, NamePatterns

_ADVICE = "select fewer profiles, or one service in place of all"
_FLAME_GRAPH = "the flame graph: "


@dataclass(frozen=True, slots=True)
class TableResult:
    """A top table with one column, that of the sample type, and the number of profiles in it.

    `samples` is the number of samples that a profiler took for it; None if that isn't known. `whole` is the
    value of all samples, also of those that patterns left out. Type and table are None if there was nothing
    to merge.
    """

    sample_type: ValueType | None
    table: TopTable | None
    profiles: int
    samples: int | None
    whole: int
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class UseResult:
    """The use of one function for one sample type, and the number of profiles in it.

    `whole` is as in TableResult. Type and use are None if there was nothing to merge.
    """

    sample_type: ValueType | None
    use: FunctionUse | None
    profiles: int
    whole: int
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
    """The flame graph of one sample type; type and graph are None if there was nothing to merge.

    `whole` is as in TableResult.
    """

    sample_type: ValueType | None
    graph: FlameGraph | None
    profiles: int
    whole: int
    left_out: tuple[LeftOut, ...]


class StackReading(NamedTuple):
    """Which stacks a flame graph has, and how it reads them.

    `by` says what its calls stand for; if recursion `is_collapsed`, a name that calls itself is one call.
    """

    latencies: LatencyRange = ALL_LATENCIES
    patterns: NamePatterns = ALL_NAMES
    by: Grouping = "function"
    is_collapsed: bool = False

    def merged(self, inputs: MergeInputs) -> _Merged | None:
        """Return what the stacks are of; None if there is nothing to merge, or nothing is measured."""
        return _merged(inputs, self.latencies, self.patterns)

    def stacks(self, merged: _Merged, budget: Budget) -> WeighedStacks:
        """Return the stacks of a merge. Raises OutputTooLarge."""
        return WeighedStacks.of(
            merged.profile, merged.column, budget, by=self.by, is_collapsed=self.is_collapsed
        )


@trim_after
def table_blobs(
    chosen: ChosenBlobs, grouping: Grouping, latencies: LatencyRange, patterns: NamePatterns, budget: Budget
) -> TableResult:
    """Return the top table of these latencies and names of the merge of blobs.

    It is for the sample type that `go tool pprof` shows. Raises AnswerTooLarge.
    """
    inputs = read_merge_inputs(chosen)
    merged = _merged(inputs, latencies, patterns)
    if merged is None:
        return TableResult(None, None, 0, None, 0, inputs.left_out)
    with refuse_too_large("the table: "):
        table = TopTable.of(merged.profile, grouping, column=merged.column, budget=budget)
        server_budget(budget).check(table.nbytes, _ADVICE)
    samples = count_samples(merged.profile, merged.column)
    return TableResult(merged.sample_type, table, len(inputs.numbers), samples, merged.whole, inputs.left_out)


@trim_after
def use_blobs(
    chosen: ChosenBlobs, name: str, latencies: LatencyRange, patterns: NamePatterns, budget: Budget
) -> UseResult:
    """Return the use of the functions with a name in these latencies and names of the merge of blobs.

    It is for the sample type that `go tool pprof` shows. Raises AnswerTooLarge.
    """
    inputs = read_merge_inputs(chosen)
    merged = _merged(inputs, latencies, patterns)
    if merged is None:
        return UseResult(None, None, 0, 0, inputs.left_out)
    with refuse_too_large("the function: "):
        use = FunctionUse.of(merged.profile, name, merged.column, budget)
        server_budget(budget).check(use.nbytes, _ADVICE)
    return UseResult(merged.sample_type, use, len(inputs.numbers), merged.whole, inputs.left_out)


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
    name_of = NAMES_OF_FRAMES[grouping]
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
def weigh_blobs(chosen: ChosenBlobs, reading: StackReading, part: Path, budget: Budget) -> StacksResult:
    """Write the stacks of the merge of blobs to the file `part`.

    They are the base for `draw_blobs`, perhaps in another worker, and don't pass through the server's
    process. Their values are of the sample type that `go tool pprof` shows. Raises AnswerTooLarge or OSError.
    """
    inputs = read_merge_inputs(chosen)
    merged = reading.merged(inputs)
    if merged is None:
        return StacksResult(None, 0, inputs.left_out)
    with refuse_too_large(_FLAME_GRAPH):
        stacks = reading.stacks(merged, budget)
    write_pieces(part, map(bytes, pack(stacks)))
    return StacksResult(merged.sample_type, len(inputs.numbers), inputs.left_out)


@trim_after
def draw_blobs(
    chosen: ChosenBlobs, reading: StackReading, view: FlameView, base: Path | None, budget: Budget
) -> FlameGraphResult:
    """Return the flame graph of the merge of blobs.

    It is compared with the stacks in the file `base` if one is given. `weigh_blobs` has written that file.
    Raises AnswerTooLarge or OSError.
    """
    inputs = read_merge_inputs(chosen)
    merged = reading.merged(inputs)
    if merged is None:
        return FlameGraphResult(None, None, 0, 0, inputs.left_out)
    with refuse_too_large(_FLAME_GRAPH):
        stacks = reading.stacks(merged, budget)
        if base is not None:
            stacks = stacks.beside(read_stacks(base), budget)
        graph = FlameGraph.of(stacks, view)
        server_budget(budget).check(sum(map(len, {*graph.names})), _ADVICE)
    return FlameGraphResult(merged.sample_type, graph, len(inputs.numbers), merged.whole, inputs.left_out)


class _Merged(NamedTuple):
    """A merge, or the part of it with some latencies and names, and the column that `go tool pprof` shows.

    `whole` is the value of that column before names are left out.
    """

    profile: Profile
    column: int
    whole: int

    @property
    def sample_type(self) -> ValueType:
        """Return what the values in the column measure."""
        return self.profile.header.sample_types[self.column]


def _merged(inputs: MergeInputs, latencies: LatencyRange, patterns: NamePatterns) -> _Merged | None:
    """Return the merge of a selection; None if there is nothing to merge, or nothing is measured."""
    if not len(inputs.numbers):
        return None
    profile = inputs.merge()
    column = _column(profile.header)
    if column is None:
        return None
    focused = focus_latency(profile, latencies)
    return _Merged(patterns.apply(focused), column, int(focused.samples.values[:, column].sum()))


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
