"""Tasks of workers about one sample type of profiles: which there are, its stacks, its sums, its profile.

The merges of several services and types are brought together: each is written to a file by the worker that
has its rows, and one worker makes the answer of the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from pprof_merge import (
    Budget,
    Header,
    IncompatibleProfiles,
    Profile,
    ProfileError,
    ValueType,
    decode,
    encode,
    inflate,
    merge,
)
from pprof_merge.analysis import FlameGraph, FlameView, WeighedStacks, focus_calls, largest_span
from pprof_merge.arrays import Int64s
from pprof_merge.codec import summaries
from pprof_merge.heap import trim_after

from pgo_collector.blobs.storage import Storage
from pgo_collector.engine.blob_columns import STORED_LIMITS
from pgo_collector.engine.merge_inputs import ChosenBlobs
from pgo_collector.engine.outputs import refuse_too_large, server_budget, write_pieces
from pgo_collector.engine.packing import pack
from pgo_collector.engine.view_inputs import ChooseColumn, ViewInputs, read_view_inputs
from pgo_collector.engine.views import read_stacks
from pgo_collector.errors import NotComparable, NotOfThisProfile
from pgo_collector.model.facts import LeftOut

Group = TypeVar("Group")
_ADVICE = "select fewer profiles"
# Stacks of so few frames are drawn with all their calls; of more, the smallest calls aren't looked at.
_FEW_FRAMES = 1 << 20
# A little less than 64 bits hold, since it is compared with a rounded sum.
_LARGEST_SUM = 9.2e18
_FLAME_GRAPH = "the flame graph: "
_PROFILE = "the profile: "


# Writes an answer with a profile, which is bare protobuf, within a budget. Raises OutputTooLarge.
WriteProfile = Callable[[bytes, Budget], bytes]


class Kind(NamedTuple):
    """The period and the sample types of a profile."""

    period: ValueType
    measured: tuple[ValueType, ...]


class PartResult(NamedTuple):
    """The size in bytes of a file that was written, 0 without a file, and the blobs that were left out."""

    size: int
    left_out: tuple[LeftOut, ...]


# What the exemplars of a series are: whole profiles, or spans; empty if it has none.
ExemplarKind = Literal["", "profile", "span"]


class Exemplar(NamedTuple):
    """The blob of a group with the largest value, or the span that has it, and its trace if known."""

    blob: str
    value: int
    span: str = ""
    trace: str = ""


def keep_larger(exemplars: dict[Group, Exemplar], group: Group, found: Exemplar) -> None:
    """Make what was found the exemplar of its group, unless the group has one with as large a value."""
    known = exemplars.get(group)
    if known is None or found.value > known.value:
        exemplars[group] = found


class SumsResult(NamedTuple):
    """The sums of groups of blobs, (n, 2) int64, and the blobs that were left out.

    `sums` is None if the blobs don't measure what is asked for. `is_state` says that a sum is what was held
    in a step of time, and not what came to it. `exemplars` have the numbers of their groups before them.
    """

    sums: Int64s | None
    left_out: tuple[LeftOut, ...]
    is_state: bool = False
    exemplars: tuple[tuple[int, Exemplar], ...] = ()


def read_kinds(storage: Storage, blobs: Sequence[str]) -> list[Kind | None]:
    """Return the kinds of stored profiles; None for one that can't be read. Raises StorageFails."""
    kinds: list[Kind | None] = []
    for content in storage.read_all(blobs):
        if isinstance(content, OSError):
            kinds.append(None)
            continue
        (known,) = summaries([content], STORED_LIMITS)
        if isinstance(known, ProfileError):
            kinds.append(None)
        else:
            kinds.append(Kind(known.header.period_type, known.header.sample_types))
    return kinds


@trim_after
def weigh_sample_type(
    chosen: ChosenBlobs, sample_type: ValueType, calls: Sequence[str], part: Path, budget: Budget
) -> PartResult:
    """Write the stacks of the merge of blobs to the file `part`, with their values of one sample type.

    Only stacks that begin with these calls are written, the root first; without `calls`, all. There is no
    file if there is nothing to write. Raises AnswerTooLarge or OSError.
    """
    profile, left_out = _measured(chosen, sample_type)
    if profile is None:
        return PartResult(0, left_out)
    with refuse_too_large(_FLAME_GRAPH):
        profile = focus_calls(profile, calls, budget)
        if not len(profile.samples):
            return PartResult(0, left_out)
        stacks = WeighedStacks.of(profile, profile.header.sample_types.index(sample_type), budget)
    return PartResult(write_pieces(part, map(bytes, pack(stacks))).size, left_out)


@trim_after
def draw_stacks(
    sides: Sequence[Sequence[Path]], most: int, write: Callable[[FlameGraph], bytes], budget: Budget
) -> bytes:
    """Return what `write` makes of the flame graph of the stacks in files, one or two sides of them.

    The stacks of the files of a side are added up. The graph has the `most` largest calls. Raises
    NotOfThisProfile if the values of a side are too large to add up, AnswerTooLarge or OSError.
    """
    with refuse_too_large(_FLAME_GRAPH):
        stacks, *bases = (WeighedStacks.joined([*map(read_stacks, files)], budget) for files in sides)
        for base in bases:
            stacks = stacks.beside(base, budget)
        if stacks.sizes.sum(axis=0, dtype=np.float64).max(initial=0) > _LARGEST_SUM:
            raise NotOfThisProfile(f"{_FLAME_GRAPH}its values add up to more than 64 bits hold")
        least = 0.0 if len(stacks.rows) <= _FEW_FRAMES else 1 / most
        graph = FlameGraph.of(stacks, FlameView(least=least, most=most))
        server_budget(budget).check(sum(map(len, graph.names)), _ADVICE)
        drawn = write(graph)
        server_budget(budget).check(len(drawn), _ADVICE)
    return drawn


@trim_after
def extract_sample_type(
    chosen: ChosenBlobs, sample_type: ValueType, calls: Sequence[str], part: Path, budget: Budget
) -> PartResult:
    """Write the merge of blobs to the file `part`, as bare protobuf, with only one sample type.

    It has the stacks that `weigh_sample_type` writes. Return and raise as `weigh_sample_type` does.
    """
    profile, left_out = _measured(chosen, sample_type)
    if profile is None:
        return PartResult(0, left_out)
    with refuse_too_large(_PROFILE):
        profile = focus_calls(profile, calls, budget)
        if not len(profile.samples):
            return PartResult(0, left_out)
        protobuf = encode(_narrowed(profile, profile.header.sample_types.index(sample_type)))
        server_budget(budget).check(len(protobuf), _ADVICE)
    return PartResult(write_pieces(part, [protobuf]).size, left_out)


@trim_after
def join_profiles(parts: Sequence[Path], write: WriteProfile, budget: Budget) -> bytes:
    """Return what `write` makes of the merge, as bare protobuf, of the profiles in one or more files.

    Raises NotComparable, AnswerTooLarge or OSError.
    """
    if len(parts) == 1:
        protobuf = parts[0].read_bytes()
    else:
        try:
            protobuf = encode(merge([decode(part.read_bytes(), STORED_LIMITS) for part in parts]))
        except IncompatibleProfiles as error:
            raise NotComparable(f"the profiles can't be merged: {error}; select one service") from error
    return _written(protobuf, write, budget)


@trim_after
def inflate_profile(content: bytes, write: WriteProfile, budget: Budget) -> bytes:
    """Return what `write` makes of a gzipped profile's bare protobuf. Raises AnswerTooLarge."""
    return _written(inflate(content, STORED_LIMITS), write, budget)


@trim_after
def total_blobs(
    chosen: ChosenBlobs,
    sample_type: ValueType,
    groups: Mapping[str, int],
    kind: ExemplarKind,
    budget: Budget,
) -> SumsResult:
    """Return the sum of one sample type, and the number of profiles, of each group of blobs.

    `groups` has the number of each blob's group, by the blob's name; those of a series don't descend with the
    time. Of a state, the number is that of the instances, of which those between two of their snapshots hold
    what they held. There are exemplars of a kind among profiles that aren't combined, but none of what is
    counted since the start of a program: one profile doesn't say what came. Raises AnswerTooLarge and
    StorageFails.
    """
    shown = read_view_inputs(chosen, _column_of(sample_type))
    if shown.column is None or shown.basis.is_since_start:
        return SumsResult(None, shown.left_out)
    n_groups = max(groups.values()) + 1
    with refuse_too_large("the series: "):
        server_budget(budget).check_rows(n_groups, 16, "use a longer step, or select less time")
    of_group = np.array([groups[name] for name in shown.inputs.names], np.int64)
    is_state = shown.kind == "state"
    counts = np.bincount(of_group, minlength=n_groups)
    if is_state:
        counts = shown.in_steps(np.ones(len(of_group), np.int64), of_group, n_groups)
    sums = np.stack((shown.totals_in_steps(of_group, n_groups), counts), axis=1)
    exemplars: dict[int, Exemplar] = {}
    if shown.kind != "cumulative" and kind:
        is_single = ~shown.inputs.blobs.is_combined
        of_single, single = of_group[is_single].tolist(), shown.take(is_single)
        found = _spans(chosen, single, sample_type) if kind == "span" else _profiles(single, sample_type)
        for group, exemplar in zip(of_single, found, strict=True):
            if exemplar is not None:
                keep_larger(exemplars, group, exemplar)
    return SumsResult(sums, shown.left_out, is_state, tuple(exemplars.items()))


def _profiles(shown: ViewInputs, sample_type: ValueType) -> Iterator[Exemplar | None]:
    """Yield each blob of a view with its total, None for one without a value."""
    totals = shown.inputs.collection.totals(shown.inputs.numbers.tolist(), sample_type)
    for name, total in zip(shown.inputs.names, totals.tolist(), strict=True):
        yield Exemplar(name, total) if total > 0 else None


def _spans(chosen: ChosenBlobs, shown: ViewInputs, sample_type: ValueType) -> Iterator[Exemplar | None]:
    """Yield each blob of a view with its largest span, None if it has none. Raises StorageFails.

    The blobs are read again, one by one: the cache is without the labels that number requests.
    """
    names = shown.inputs.names
    for name, content in zip(names, chosen.blobs.storage.read_all(names), strict=True):
        found = None
        # It may have gone, or be damaged, since its rows were read.
        if not isinstance(content, OSError):
            with suppress(ProfileError):
                profile = decode(content, STORED_LIMITS)
                found = largest_span(profile, profile.header.sample_types.index(sample_type))
        yield None if found is None else Exemplar(name, found.value, found.span, found.trace)


def _measured(chosen: ChosenBlobs, sample_type: ValueType) -> tuple[Profile | None, tuple[LeftOut, ...]]:
    """Return what a view shows of blobs, and those that were left out.

    There is none if they don't measure this, or if there is nothing to merge or to compare.
    """
    shown = read_view_inputs(chosen, _column_of(sample_type))
    # Grafana shows what came in a range of time, and can't be told that it is since the start of a program.
    if shown.column is None or shown.basis.is_since_start:
        return None, shown.left_out
    return shown.merge(), shown.left_out


def _column_of(sample_type: ValueType) -> ChooseColumn:
    """Return what chooses the column of a sample type."""

    def choose(header: Header) -> int | None:
        return header.sample_types.index(sample_type) if sample_type in header.sample_types else None

    return choose


def _narrowed(profile: Profile, column: int) -> Profile:
    """Return a profile with one of its sample types."""
    header = profile.header._replace(
        sample_types=(profile.header.sample_types[column],), default_sample_type=b""
    )
    samples = replace(profile.samples, values=profile.samples.values[:, column : column + 1].copy())
    return profile.replace(header=header, samples=samples)


def _written(protobuf: bytes, write: WriteProfile, budget: Budget) -> bytes:
    with refuse_too_large(_PROFILE):
        server_budget(budget).check(len(protobuf), _ADVICE)
        answer = write(protobuf, budget)
        server_budget(budget).check(len(answer), _ADVICE)
    return answer
