"""The inputs of a view: those of a merge, and how each sample type is brought together.

A merge adds up what its profiles have. A view shows a state as the mean over time of each instance, and what
Go counts from the start of a program as the differences of each instance's snapshots: see
`pprof_merge.merging.snapshots`. An instance is a series: processes should differ in a label. A combined blob,
which is a sum of snapshots, is in no view of either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from pprof_merge import Header, Profile, ValueType
from pprof_merge.arrays import Bools, Int64s
from pprof_merge.merging import Kind, Snapshots, kinds_of

from pgo_collector.engine.merge_inputs import ChosenBlobs, MergeInputs, read_merge_inputs
from pgo_collector.engine.symbols import Symbols
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.profile_types import COUNTED_SINCE_START

# Returns the column to show of a profile with this header; None for none.
ChooseColumn = Callable[[Header], int | None]

# More restarts than these, and than in every fourth snapshot, are no restarts.
_FEW_RESTARTS = 2
_COMBINED = "it is the sum of several snapshots, whose times a combine has dropped"
_OTHER_KIND = "it has differences where most have snapshots, or the other way round"


class Basis(NamedTuple):
    """How the values of a sample type were brought together, and from which snapshots.

    A sum is of the kind `amount`, for which the rest isn't told. `begin` and `end` are the times of the first
    and the last snapshot, in ns since 1970. If it `is_since_start`, there is one snapshot of each instance,
    and what is cumulative counts from the start of its program on; otherwise `before` is what had been
    counted in the first snapshots. If it `is_mixed`, so many programs seem to begin again that several share
    all labels.
    """

    kind: Kind = "amount"
    snapshots: int = 0
    instances: int = 0
    restarts: int = 0
    begin: int = 0
    end: int = 0
    is_since_start: bool = False
    before: int = 0
    is_mixed: bool = False

    def joined(self, other: Basis) -> Basis:
        """Return the basis of the sum of values of two services."""
        if "amount" in {self.kind, other.kind}:
            return max(self, other)  # what has no snapshots says nothing of them
        return Basis(
            self.kind,
            self.snapshots + other.snapshots,
            self.instances + other.instances,
            self.restarts + other.restarts,
            min(self.begin, other.begin),
            max(self.end, other.end),
            self.is_since_start and other.is_since_start,
            self.before + other.before,
            self.is_mixed or other.is_mixed,
        )


ADDED_UP = Basis()


@dataclass(frozen=True, slots=True, eq=False)
class ViewInputs:
    """The inputs of a view of the sample type in the `column` of the header of their merge.

    There is neither header nor column if there is nothing to show. `snapshots` is None if the profiles only
    have amounts.
    """

    inputs: MergeInputs
    header: Header | None
    column: int | None
    kinds: Mapping[ValueType, Kind]
    snapshots: Snapshots | None
    symbols: Symbols

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Return the blobs that are in no merge, or not in this view."""
        return self.inputs.left_out

    @property
    def profiles(self) -> int:
        """Return the number of profiles in the view."""
        return len(self.inputs.numbers)

    @property
    def sample_type(self) -> ValueType | None:
        """Return what the view is of."""
        return None if self.header is None or self.column is None else self.header.sample_types[self.column]

    @property
    def kind(self) -> Kind:
        """Return the kind of the view's sample type."""
        sample_type = self.sample_type
        return "amount" if sample_type is None else self.kinds[sample_type]

    @property
    def basis(self) -> Basis:
        """Return how the values of the view's sample type are brought together."""
        snapshots, kind, sample_type = self.snapshots, self.kind, self.sample_type
        if snapshots is None or sample_type is None or kind == "amount":
            return ADDED_UP
        firsts = self.inputs.numbers[snapshots.firsts].tolist() if kind == "cumulative" else []
        restarts, is_cumulative = int(snapshots.is_restart.sum()), kind == "cumulative"
        return Basis(
            kind,
            len(snapshots),
            snapshots.n_instances,
            restarts if is_cumulative else 0,
            int(snapshots.times.min()),
            int(snapshots.times.max()),
            is_cumulative and snapshots.is_since_start,
            int(self.inputs.collection.totals(firsts, sample_type).sum()),
            restarts > max(_FEW_RESTARTS, (len(snapshots) - snapshots.n_instances) // 4),
        )

    def take(self, mask: Bools) -> ViewInputs:
        """Return the same view of some of the profiles (n,)."""
        numbers, blobs = self.inputs.numbers[mask], self.inputs.blobs.take(np.flatnonzero(mask))
        inputs = replace(self.inputs, numbers=numbers, blobs=blobs)
        return _view(inputs, self.kinds, self._choose, self.symbols)

    def _choose(self, header: Header) -> int | None:
        sample_type = self.sample_type
        return None if sample_type is None else header.sample_types.index(sample_type)

    def merge(self, depth: int | None = None) -> Profile:
        """Return what the view shows, as a profile with names. `depth` is as in `Collection.merge`."""
        if self.snapshots is None:
            return self.symbols.named(self.inputs.merge(depth=depth))
        of = self.inputs.numbers.tolist(), self.snapshots, self.kinds
        return self.symbols.named(self.inputs.collection.merge_snapshots(*of, depth))

    def in_steps(self, values: Int64s, steps: Int64s, n_steps: int) -> Int64s:
        """Return what the values (n,) of the view's sample type come to in each step (n_steps,).

        `steps` (n,) are as `Snapshots.spans` takes them.
        """
        if self.snapshots is not None:
            return self.snapshots.in_steps(self.kind, values[:, None], steps, n_steps)[:, 0]
        sums = np.zeros(n_steps, np.int64)
        np.add.at(sums, steps, values)
        return sums

    def totals_in_steps(self, steps: Int64s, n_steps: int) -> Int64s:
        """Return the totals of the view's sample type in each step (n_steps,)."""
        sample_type = self.sample_type
        if sample_type is None:
            return np.zeros(n_steps, np.int64)
        totals = self.inputs.collection.totals(self.inputs.numbers.tolist(), sample_type)
        return self.in_steps(totals, steps, n_steps)


def read_view_inputs(chosen: ChosenBlobs, choose: ChooseColumn, *, every_label: bool = False) -> ViewInputs:
    """Read the blobs; return those that a view shows, and why it doesn't show the others.

    `every_label` is as `read_merge_inputs` has it.
    """
    inputs = read_merge_inputs(chosen, every_label=every_label)
    if not len(inputs.numbers):
        return ViewInputs(inputs, None, None, {}, None, chosen.symbols)
    kinds_of_each, which = _kinds(inputs, chosen.type)
    usual = Counter(which.tolist()).most_common(1)[0][0]
    kinds = kinds_of_each[usual]
    inputs = _without(inputs, which != usual, _OTHER_KIND)
    if {*kinds.values()} != {"amount"} and inputs.blobs.is_combined.any():
        header = inputs.collection.merged_header(inputs.numbers.tolist())
        column = choose(header)
        if column is None or kinds[header.sample_types[column]] != "amount":
            inputs = _without(inputs, inputs.blobs.is_combined, _COMBINED)
    return _view(inputs, kinds, choose, chosen.symbols)


def _view(
    inputs: MergeInputs, kinds: Mapping[ValueType, Kind], choose: ChooseColumn, symbols: Symbols
) -> ViewInputs:
    numbers = inputs.numbers.tolist()
    if not numbers:
        return ViewInputs(inputs, None, None, kinds, None, symbols)
    header = inputs.collection.merged_header(numbers)
    snapshots = None
    if {*kinds.values()} - {"amount"}:
        snapshots = Snapshots.of(inputs.blobs.series_numbers, inputs.blobs.times)
        counted = [each for each, kind in kinds.items() if kind == "cumulative"]
        if counted:
            snapshots = inputs.collection.with_restarts(numbers, snapshots, counted)
    return ViewInputs(inputs, header, choose(header), kinds, snapshots, symbols)


def _kinds(inputs: MergeInputs, type_: str) -> tuple[list[dict[ValueType, Kind]], Int64s]:
    """Return the distinct kinds of the profiles' sample types, and the index of each profile's (n,)."""
    headers, header_of = inputs.collection.headers(inputs.numbers)
    has_duration = inputs.collection.durations(inputs.numbers) > 0
    pairs, pair_of = np.unique(2 * header_of + has_duration, return_inverse=True)
    found: dict[tuple[tuple[ValueType, Kind], ...], int] = {}
    index_of_pair = []
    for header, duration in (divmod(pair, 2) for pair in pairs.tolist()):
        of_header = headers[header]._replace(duration_nanos=duration)
        kinds = kinds_of(of_header, is_counted_since_start=type_ in COUNTED_SINCE_START)
        index_of_pair.append(found.setdefault(tuple(sorted(kinds.items())), len(found)))
    return [dict(kinds) for kinds in found], np.array(index_of_pair, np.int64)[pair_of]


def _without(inputs: MergeInputs, mask: Bools, why: str) -> MergeInputs:
    """Return inputs without some of the blobs (n,), for a reason."""
    if not mask.any():
        return inputs
    left_out = (LeftOut(inputs.blobs.name(row), why) for row in np.flatnonzero(mask).tolist())
    kept = np.flatnonzero(~mask)
    return replace(
        inputs,
        numbers=inputs.numbers[kept],
        blobs=inputs.blobs.take(kept),
        left_out=(*inputs.left_out, *left_out),
    )
