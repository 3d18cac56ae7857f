"""Views of stored profiles, as workers compute them: tables, functions, timelines, flame graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from errno import EIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pprof_merge import Budget, Header, Profile, ValueType
from pprof_merge.analysis import (
    NAMES_OF_FRAMES,
    FlameGraph,
    FlameView,
    FunctionUse,
    Grouping,
    Timeline,
    TopTable,
    WeighedStacks,
    as_shown,
    count_samples,
    default_column,
    focus_latency,
    group_samples,
    largest_groups,
    shown_name,
    totals_of,
    with_trimmed_paths,
)
from pprof_merge.arrays import Int64s
from pprof_merge.heap import trim_after
from pprof_merge.symbols import unnamed_value

from pgo_collector.engine.merge_inputs import ChosenBlobs
from pgo_collector.engine.outputs import refuse_too_large, server_budget, write_pieces
from pgo_collector.engine.packing import pack, unpack
from pgo_collector.engine.view_inputs import ADDED_UP, Basis, ChooseColumn, ViewInputs, read_view_inputs
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.profile_types import WALL
from pgo_collector.model.selection import USUAL, Focus

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
    sample_types: tuple[ValueType, ...] = ()
    basis: Basis = ADDED_UP


@dataclass(frozen=True, slots=True, eq=False)
class Around:
    """The callers and the callees of a function, as flame graphs whose first call is the function.

    `total` is the value of all stacks, also of those without the function.
    """

    callers: FlameGraph
    callees: FlameGraph
    total: int


@dataclass(frozen=True, slots=True)
class UseResult:
    """The use of one function for one sample type, and the number of profiles in it.

    `whole` is as in TableResult. Type and use are None if there was nothing to merge. `around` has the calls
    around the function, if they were asked for.
    """

    sample_type: ValueType | None
    use: FunctionUse | None
    profiles: int
    whole: int
    left_out: tuple[LeftOut, ...]
    sample_types: tuple[ValueType, ...] = ()
    around: Around | None = None
    basis: Basis = ADDED_UP


@dataclass(frozen=True, slots=True)
class TimelineResult:
    """Total, flat and cum of one sample type in each step: `steps` is (n_steps, 3) int64.

    Type and steps are None if there was nothing to merge.
    """

    sample_type: ValueType | None
    steps: Int64s | None
    profiles: int
    left_out: tuple[LeftOut, ...]
    sample_types: tuple[ValueType, ...] = ()
    basis: Basis = ADDED_UP


@dataclass(frozen=True, slots=True)
class StacksResult:
    """The sample type of a merge's weighed stacks, which are in a file.

    The type is None, and there is no file, if there was nothing to merge.
    """

    sample_type: ValueType | None
    profiles: int
    left_out: tuple[LeftOut, ...]
    basis: Basis = ADDED_UP


@dataclass(frozen=True, slots=True)
class FlameGraphResult:
    """The flame graph of one sample type; type and graph are None if there was nothing to merge.

    `whole` is as in TableResult, and `unnamed` is the value of the samples whose leaf has no function.
    """

    sample_type: ValueType | None
    graph: FlameGraph | None
    profiles: int
    whole: int
    left_out: tuple[LeftOut, ...]
    sample_types: tuple[ValueType, ...] = ()
    basis: Basis = ADDED_UP
    unnamed: int = 0


class EqualSteps(NamedTuple):
    """`number` steps of time of `width` ns each, from `begin` on, in ns since 1970."""

    begin: int
    width: int
    number: int


class StepTotals(NamedTuple):
    """The totals of one sample type in steps of time, (n_steps,) int64; both are None if there are none.

    They are without `left_out` blobs, which can't be read.
    """

    sample_type: ValueType | None
    totals: Int64s | None
    left_out: tuple[LeftOut, ...] = ()
    basis: Basis = ADDED_UP


# The totals of profiles that take too much memory.
TOO_MANY = StepTotals(None, None)


class StackReading(NamedTuple):
    """The stacks of a flame graph, and how it reads them.

    `by` says what its calls stand for; if recursion `is_collapsed`, a name that calls itself is one call.
    With a `group`, the key of a label, the first call of each stack is a value of it.
    """

    focus: Focus = USUAL
    by: Grouping = "function"
    is_collapsed: bool = False
    group: str = ""

    def stacks(self, merged: _Merged, budget: Budget) -> WeighedStacks:
        """Return the stacks of a merge. Raises OutputTooLarge."""
        return WeighedStacks.of(
            merged.profile, merged.column, budget, by=self.by, is_collapsed=self.is_collapsed
        )


@trim_after
def table_blobs(chosen: ChosenBlobs, grouping: Grouping, focus: Focus, budget: Budget) -> TableResult:
    """Return the top table of a part of the merge of blobs. Raises AnswerTooLarge."""
    shown = read_view_inputs(chosen, column_called(focus.sample_type))
    merged = _merged(shown, focus)
    if merged is None:
        return TableResult(None, None, 0, None, 0, shown.left_out)
    with refuse_too_large("the table: "):
        table = TopTable.of(merged.profile, grouping, column=merged.column, budget=budget)
        server_budget(budget).check(table.nbytes, _ADVICE)
    samples = count_samples(merged.profile, merged.column)
    return TableResult(
        merged.sample_type,
        table,
        shown.profiles,
        samples,
        merged.whole,
        shown.left_out,
        merged.sample_types,
        shown.basis,
    )


@trim_after
def use_blobs(
    chosen: ChosenBlobs, name: str, focus: Focus, around: FlameView | None, budget: Budget
) -> UseResult:
    """Return the use of the functions with a name in a part of the merge of blobs.

    With a view, the result has the trees of callers and of callees, too. Raises AnswerTooLarge.
    """
    shown = read_view_inputs(chosen, column_called(focus.sample_type))
    merged = _merged(shown, focus)
    if merged is None:
        return UseResult(None, None, 0, 0, shown.left_out)
    with refuse_too_large("the function: "):
        use = FunctionUse.of(merged.profile, name, merged.column, budget)
        server_budget(budget).check(use.nbytes, _ADVICE)
    return UseResult(
        merged.sample_type,
        use,
        shown.profiles,
        merged.whole,
        shown.left_out,
        merged.sample_types,
        None if around is None else _around(merged, name, focus, around, budget),
        shown.basis,
    )


@trim_after
def time_blobs(
    chosen: ChosenBlobs,
    steps: Mapping[str, int],
    subject: tuple[Grouping, str],
    focus: Focus,
    budget: Budget,
) -> TimelineResult:
    """Return how much a function, package or file takes of a part of the merge, step by step.

    `steps` has the number of each blob's step, by the blob's name, and `subject` what is asked for.
    Raises AnswerTooLarge.
    """
    shown = read_view_inputs(chosen, column_called(focus.sample_type))
    if shown.column is None:
        return TimelineResult(None, None, 0, shown.left_out)
    grouping, name = subject
    name_of = NAMES_OF_FRAMES[grouping]
    if grouping == "function":
        name = shown_name(name)
    with refuse_too_large("the timeline: "):
        found = Timeline.of(
            shown.inputs.collection,
            shown.inputs.numbers.tolist(),
            [steps[blob] for blob in shown.inputs.names],
            lambda frame: name_of(frame) == name,
            budget,
            latencies=focus.latencies,
            snapshots=shown.snapshots,
            kinds=shown.kinds,
            named=shown.symbols.named,
        )
    values = np.stack([part[:, shown.column] for part in (found.total, found.flat, found.cum)], axis=1)
    types = found.header.sample_types
    return TimelineResult(shown.sample_type, values, shown.profiles, shown.left_out, types, shown.basis)


@trim_after
def total_steps(chosen: ChosenBlobs, sample_type: str, steps: EqualSteps, budget: Budget) -> StepTotals:
    """Return the totals of a sample type in steps of time.

    A blob that begins earlier or later is in the first or the last step. Raises AnswerTooLarge.
    """
    shown = read_view_inputs(chosen, column_called(sample_type))
    if shown.sample_type is None:
        return StepTotals(None, None, shown.left_out)
    begin, width, count = steps
    with refuse_too_large("the timeline: "):
        server_budget(budget).check_rows(count, 8, _ADVICE)
    # Times may be further apart than 63 bits hold; their difference as unsigned numbers is exact.
    since = np.maximum(shown.inputs.blobs.times, begin).view(np.uint64) - np.uint64(begin % (1 << 64))
    numbered = np.minimum(since // np.uint64(width), np.uint64(count - 1)).astype(np.int64)
    totals = shown.totals_in_steps(numbered, count)
    return StepTotals(shown.sample_type, totals, shown.left_out, shown.basis)


@trim_after
def weigh_blobs(chosen: ChosenBlobs, reading: StackReading, part: Path, budget: Budget) -> StacksResult:
    """Write the stacks of a part of the merge of blobs to the file `part`.

    They are the base for `draw_blobs`, perhaps in another worker, and don't pass through the server's
    process. Raises AnswerTooLarge or OSError.
    """
    shown = read_view_inputs(chosen, column_called(reading.focus.sample_type))
    weighed = _weighed(shown, reading, budget)
    if weighed is None:
        return StacksResult(None, 0, shown.left_out)
    write_pieces(part, map(bytes, pack(weighed.stacks)))
    return StacksResult(weighed.sample_type, shown.profiles, shown.left_out, shown.basis)


@trim_after
def draw_blobs(
    chosen: ChosenBlobs, reading: StackReading, view: FlameView, base: Path | None, budget: Budget
) -> FlameGraphResult:
    """Return the flame graph of a part of the merge of blobs.

    It is compared with the stacks in the file `base` if one is given. `weigh_blobs` has written that file.
    Raises AnswerTooLarge or OSError.
    """
    shown = read_view_inputs(chosen, column_called(reading.focus.sample_type))
    weighed = _weighed(shown, reading, budget)
    if weighed is None:
        return FlameGraphResult(None, None, 0, 0, shown.left_out)
    with refuse_too_large(_FLAME_GRAPH):
        stacks = weighed.stacks if base is None else weighed.stacks.beside(read_stacks(base), budget)
        graph = FlameGraph.of(stacks, view)
        server_budget(budget).check(sum(map(len, {*graph.names})), _ADVICE)
    return FlameGraphResult(
        weighed.sample_type,
        graph,
        shown.profiles,
        weighed.whole,
        shown.left_out,
        weighed.sample_types,
        shown.basis,
        weighed.unnamed,
    )


class _Weighed(NamedTuple):
    """The stacks of a view, and what they measure: the type in the `column` of all sample types.

    `whole` and `unnamed` are as in FlameGraphResult.
    """

    stacks: WeighedStacks
    sample_types: tuple[ValueType, ...]
    column: int
    whole: int
    unnamed: int

    @property
    def sample_type(self) -> ValueType:
        """Return what the values of the stacks measure."""
        return self.sample_types[self.column]


def _weighed(shown: ViewInputs, reading: StackReading, budget: Budget) -> _Weighed | None:
    """Return the stacks of a view, in groups if they are asked for; None if there are none.

    Profiles are merged for each value of the group's label if it is one of their series; else samples are
    grouped by their own labels. Raises AnswerTooLarge.
    """
    groups, key = _groups(shown, reading.group), reading.group
    parts: list[_Weighed] = []
    for name, part in groups.items():
        merged = _merged(part, reading.focus)
        if merged is None:
            continue
        with refuse_too_large(_FLAME_GRAPH):
            stacks = reading.stacks(merged, budget)
            if name:
                stacks = stacks.below([name], np.zeros(len(stacks.values), np.int64))
            elif key:
                stacks = stacks.below(*group_samples(merged.profile, key, merged.column))
        unnamed = unnamed_value(merged.profile, merged.column)
        parts.append(_Weighed(stacks, merged.sample_types, merged.column, merged.whole, unnamed))
    if len(parts) < 2:
        return parts[0] if parts else None
    with refuse_too_large(_FLAME_GRAPH):
        joined = WeighedStacks.joined([part.stacks for part in parts], budget)
    whole, unnamed = sum(part.whole for part in parts), sum(part.unnamed for part in parts)
    return parts[0]._replace(stacks=joined, whole=whole, unnamed=unnamed)


def _groups(shown: ViewInputs, key: str) -> dict[str, ViewInputs]:
    """Return a part of a view for each value of a label of its series, by the name of the group.

    Without a group, or if no series has the label, there is one part, without a name. The values with the
    most profiles have groups of their own.
    """
    blobs = shown.inputs.blobs
    values = [dict(series.labels).get(key, "") for series in blobs.series] if key else []
    if not any(values):
        return {"": shown}
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    value_of = np.array([numbers[value] for value in values], np.int64)[blobs.series_numbers]
    names, group_of = largest_groups(key, [*numbers], value_of, np.ones(len(blobs), np.int64))
    return {name: shown.take(group_of == number) for number, name in enumerate(names)}


def _around(merged: _Merged, name: str, focus: Focus, view: FlameView, budget: Budget) -> Around:
    with refuse_too_large(_FLAME_GRAPH):
        stacks = StackReading(focus).stacks(merged, budget)
        callers, callees = (FlameGraph.of(part, view) for part in stacks.around(name))
        names = {*callers.names, *callees.names}
        server_budget(budget).check(sum(map(len, names)), _ADVICE)
    return Around(callers, callees, int(stacks.sizes.sum()))


class _Merged(NamedTuple):
    """A merge, or the part of it with some latencies and names, and the column of one sample type.

    `whole` is the value of that column before names are left out.
    """

    profile: Profile
    column: int
    whole: int

    @property
    def sample_types(self) -> tuple[ValueType, ...]:
        """Return what the profile measures."""
        return self.profile.header.sample_types

    @property
    def sample_type(self) -> ValueType:
        """Return what the values in the column measure."""
        return self.sample_types[self.column]


def _merged(shown: ViewInputs, focus: Focus) -> _Merged | None:
    """Return what a view shows; None if there is nothing to merge, or nothing is measured."""
    column = shown.column
    if column is None:
        return None
    profile = shown.merge()
    some = as_shown(focus_latency(profile, focus.latencies))
    chosen = with_trimmed_paths(focus.patterns.apply(some), focus.trim_path)
    return _Merged(chosen, column, int(totals_of(some)[column]))


def read_stacks(part: Path) -> WeighedStacks:
    """Return the stacks in a file that another worker wrote. Raises OSError, also if the file is damaged."""
    with part.open("rb") as file:
        mapped = mmap(file.fileno(), 0, access=ACCESS_READ)  # stays mapped as long as its arrays are used
    unpacked = unpack(memoryview(mapped))
    if unpacked is None or not isinstance(unpacked.content, WeighedStacks):
        raise OSError(EIO, "the stacks of the base are damaged")
    return unpacked.content


def column_called(name: str) -> ChooseColumn:
    """Return what chooses the column of the sample type of a name, or that which is shown if there is none.

    That is the one that `go tool pprof` shows, except where a profile of wall time has CPU time beside it, as
    Node's have. It is None for a profile without sample types.
    """

    def choose(header: Header) -> int | None:
        if not header.sample_types:
            return None
        names = [sample_type.type.decode(errors="backslashreplace") for sample_type in header.sample_types]
        wanted = name if name in names or header.default_sample_type else WALL
        return names.index(wanted) if wanted in names else default_column(header)

    return choose
