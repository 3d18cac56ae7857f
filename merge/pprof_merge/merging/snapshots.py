"""Snapshots: profiles of what is held at a moment, or was counted since a program began, as views show them.

A merge adds profiles up. That is right for an amount, such as CPU time, and wrong for these two:

    amount      what was spent in the time of the profile           the sum
    state       what was there at the moment of the profile         the mean over time of each instance, and
                                                                    the sum over instances
    cumulative  what was counted from the program's start on        the differences of each instance's
                                                                    neighbouring snapshots, and their sum

Either is a sum of the profiles times a factor each, in each step of time that is asked for: `Snapshots` has the
factors. `KINDS` says which sample type is what. Go's `?seconds=` makes differences itself: see `kinds_of`.
"""  # noqa: E501 - a table

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from pprof_merge.arrays import Bools, Floats, Int64s, Ints
from pprof_merge.columns.ragged import take_rows
from pprof_merge.merging.selection import Chunk, SelectedProfiles
from pprof_merge.merging.sums import PlainSums
from pprof_merge.profile import Header, ValueType

Kind = Literal["amount", "state", "cumulative"]

# The kinds of sample types by their names; any other is an amount.
KINDS: Sequence[tuple[re.Pattern[bytes], Kind]] = (
    # What the heap holds: by Go, Node, .NET, Python and Rust.
    (re.compile(rb"inuse[-_]\w+|heap[-_](?:space|live[-_]\w+)|objects|space"), "state"),
    (re.compile(rb"goroutines?|goroutineleaks?|threadcreate"), "state"),
    # What Go counts from the start of the program on.
    (re.compile(rb"alloc_(?:objects|space)|contentions|delay"), "cumulative"),
)
# The sample types of Go's profiles that it makes differences of on request.
_GO = re.compile(rb"alloc_(?:objects|space)|contentions|delay|goroutine|threadcreate")
# How many usual intervals an instance may be silent and still hold what it held before.
_MOST_MISSED = 5
# The largest integer of 64 bits that is one of 53 bits, too.
_LARGEST = float((1 << 63) - (1 << 10))


def kinds_of(header: Header, *, is_counted_since_start: bool) -> dict[ValueType, Kind]:
    """Return the kinds of a profile's sample types; the header has its duration.

    A profile of Go with a duration is the difference of two snapshots that Go has made (`?seconds=`): all of
    it is an amount. Unless it `is_counted_since_start`, the sender has made differences of what Go counts,
    and left states as they are.
    """
    types = header.sample_types
    if (
        is_counted_since_start
        and header.duration_nanos > 0
        and any(_GO.fullmatch(each.type) for each in types)
    ):
        return dict.fromkeys(types, "amount")
    found = {each: kind_of(each.type) for each in types}
    if is_counted_since_start:
        return found
    return {each: "amount" if kind == "cumulative" else kind for each, kind in found.items()}


def kind_of(name: bytes) -> Kind:
    """Return the kind of a sample type of this name, unless its sender has made differences of it."""
    return next((kind for pattern, kind in KINDS if pattern.fullmatch(name)), "amount")


class Spans(NamedTuple):
    """Where k profiles count: in the steps `begins` to `ends` - 1, times `factors`; (k,) each.

    `profiles` are positions; a profile may be there several times, or not at all.
    """

    profiles: Int64s
    begins: Int64s
    ends: Int64s
    factors: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Snapshots:
    """n profiles as snapshots of instances: profiles of one instance and time are one snapshot, their sum.

    `order` (n,) has the positions of the profiles by instance, then time. Of the m snapshots in that order,
    `offsets` (m + 1) say where the profiles of each begin in `order`, `instances` (m,) whose they are, and
    `times` (m,) when they were taken, in ns. `is_restart` (m,) says which of them are the first after a
    restart of the program.
    """

    order: Int64s
    offsets: Int64s
    instances: Int64s
    times: Int64s
    is_restart: Bools

    @classmethod
    def of(cls, instances: Ints, times: Int64s) -> Snapshots:
        """Return the snapshots of profiles, by the instance and the time of each (n,), without restarts."""
        order = np.lexsort((times, instances))
        owners, moments = instances[order].astype(np.int64), times[order]
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = (owners[1:] != owners[:-1]) | (moments[1:] != moments[:-1])
        firsts = np.flatnonzero(is_new)
        return cls(
            order,
            np.append(firsts, len(order)),
            owners[firsts],
            moments[firsts],
            np.zeros(len(firsts), np.bool_),
        )

    def __len__(self) -> int:
        return len(self.times)

    @property
    def n_instances(self) -> int:
        """Return the number of instances."""
        return int(np.count_nonzero(self._is_first))

    @property
    def firsts(self) -> Int64s:
        """Return the positions of the profiles in the first snapshot of each instance."""
        rows, _ = take_rows(self.offsets, np.flatnonzero(self._is_first))
        return self.order[rows]

    @property
    def is_since_start(self) -> bool:
        """Return whether each instance has just one snapshot, so that nothing can be taken from it."""
        return self.n_instances == len(self)

    @property
    def _is_first(self) -> Bools:
        """Return which snapshots are the first of their instance."""
        is_first: Bools = np.diff(self.instances, prepend=-1) != 0
        return is_first

    def with_restarts(self, profiles: SelectedProfiles, types: Sequence[ValueType]) -> Snapshots:
        """Return these snapshots of the profiles with restarts, which are seen by these types.

        What is counted from a start on never becomes less. So a program was restarted if any stack has less
        than before, or is gone.
        """
        fell = np.zeros(len(self), np.bool_)
        before = _Counts(len(types))
        rows = _rows_of(profiles.take(self.order), tuple(types))
        for snapshot, (is_first, size) in enumerate(
            zip(self._is_first.tolist(), np.diff(self.offsets).tolist(), strict=True)
        ):
            every = [next(rows) for _ in range(size)]
            stacks = np.concatenate([stacks for stacks, _ in every])
            values = np.concatenate([values for _, values in every])
            fell[snapshot] = before.replace(stacks, values) and not is_first
        return Snapshots(self.order, self.offsets, self.instances, self.times, fell)

    def spans(self, kind: Kind, steps: Int64s) -> Spans:
        """Return where the profiles count in `steps` (n,), which don't descend with the time of an instance.

        A state counts in its step as a share of the mean, and on through steps in which its instance took
        no snapshot, up to the next one. What came between two snapshots counts in the step of the later one;
        after a restart, all of that one does. Where no instance has two snapshots, what it has is all that is
        known.
        """
        if kind == "amount" or (kind == "cumulative" and self.is_since_start):
            return Spans(np.arange(len(self.order)), steps, steps + 1, np.ones(len(self.order)))
        of = steps[self.order[self.offsets[:-1]]]
        return self._differences(of) if kind == "cumulative" else self._means(of)

    def factors(self, kind: Kind) -> Floats:
        """Return how often each profile counts over the whole time (n,)."""
        spans = self.spans(kind, np.zeros(len(self.order), np.int64))
        factors = np.zeros(len(self.order))
        np.add.at(factors, spans.profiles, spans.factors)
        return factors

    def in_steps(self, kind: Kind, values: Int64s, steps: Int64s, n_steps: int) -> Int64s:
        """Return what the profiles' values (n, k) come to in each step, (n_steps, k), rounded once."""
        profiles, begins, ends, factors = self.spans(kind, steps)
        if kind != "state":
            sums = np.zeros((n_steps, values.shape[1]), np.int64)
            np.add.at(sums, begins, values[profiles] * factors.astype(np.int64)[:, None])
            return sums
        held = values[profiles] * factors[:, None]
        edges = np.zeros((n_steps + 1, values.shape[1]))
        np.add.at(edges, begins, held)
        np.subtract.at(edges, ends, held)
        return _whole(np.rint(np.cumsum(edges[:-1], axis=0)))

    def _means(self, steps: Int64s) -> Spans:
        """Return the spans of a state, given the step of each snapshot (m,)."""
        is_new = self._is_first | (np.diff(steps, prepend=-1) != 0)
        counts = np.diff(np.append(np.flatnonzero(is_new), len(self)))
        means = np.repeat(1 / counts, counts)
        is_held = np.append(~self._is_first[1:], False) & (self._gaps() // _MOST_MISSED <= self._usual_gaps())
        held = np.flatnonzero(is_held)
        held = held[steps[held + 1] > steps[held] + 1]
        return self._spans(
            np.append(np.arange(len(self)), held),
            np.append(steps, steps[held] + 1),
            np.append(steps + 1, steps[held + 1]),
            np.append(means, np.ones(len(held))),
        )

    def _differences(self, steps: Int64s) -> Spans:
        """Return the spans of what is cumulative, given the step of each snapshot (m,)."""
        later = np.flatnonzero(~self._is_first)
        going_on = later[~self.is_restart[later]]
        at = np.append(steps[later], steps[going_on])
        signs = np.append(np.ones(len(later)), -np.ones(len(going_on)))
        return self._spans(np.append(later, going_on - 1), at, at + 1, signs)

    def _spans(self, snapshots: Int64s, begins: Int64s, ends: Int64s, factors: Floats) -> Spans:
        """Return the spans of snapshots as those of their profiles."""
        profiles, offsets = take_rows(self.offsets, snapshots)
        sizes = np.diff(offsets)
        return Spans(
            self.order[profiles],
            np.repeat(begins, sizes),
            np.repeat(ends, sizes),
            np.repeat(factors, sizes),
        )

    def _gaps(self) -> Int64s:
        """Return the time from each snapshot to the next one (m,), which may be another instance's."""
        return np.append(np.diff(self.times), 0)

    def _usual_gaps(self) -> Int64s:
        """Return the median of the gaps of each snapshot's instance (m,)."""
        firsts = np.flatnonzero(self._is_first)
        counts = np.diff(np.append(firsts, len(self)))
        gaps = self._gaps()
        gaps[firsts + counts - 1] = np.iinfo(np.int64).max  # those of the last snapshots, which have no next
        ordered = gaps[np.lexsort((gaps, self.instances))]
        return np.repeat(ordered[firsts + np.maximum(counts - 2, 0) // 2], counts)


class SnapshotSums:
    """Sums of profiles times factors, as `merging.sums.Sums`; those of states are rounded, the others exact.

    `factors` is (n_profiles, n_types), in the order in which profiles are added.
    """

    def __init__(self, kinds: Sequence[Kind], factors: Floats) -> None:
        self._factors = factors
        self._states = [column for column, kind in enumerate(kinds) if kind == "state"]
        self._exact, self._means = PlainSums(), np.zeros((0, len(self._states)))
        self._n_added = 0

    def resize(self, n_stacks: int, n_types: int) -> None:
        """See `Sums`."""
        self._exact.resize(n_stacks, n_types)
        means = np.zeros((n_stacks, len(self._states)))
        means[: len(self._means)] = self._means
        self._means = means

    def add(self, chunk: Chunk) -> None:
        """See `Sums`."""
        counts = np.diff(chunk.offsets)
        factors = self._factors[self._n_added : self._n_added + len(counts)]
        self._n_added += len(counts)
        for column in range(chunk.values.shape[1]):
            repeated = np.repeat(factors[:, column], counts)
            if column in self._states:
                means = self._means[:, self._states.index(column)]
                np.add.at(means, chunk.stacks, chunk.values[:, column] * repeated)
            else:
                values = chunk.values[:, column] * repeated.astype(np.int64)
                self._exact.add_column(column, chunk.stacks, values)

    def take(self, stacks: Ints) -> Int64s:
        """See `Sums`. States are rounded so that those of all stacks add up to their rounded sum."""
        sums = self._exact.take(stacks).copy()
        for row, column in enumerate(self._states):
            sums[:, column] = _rounded(self._means[stacks, row])
        return sums


def _rounded(means: Floats) -> Int64s:
    """Return numbers rounded, those with the largest fractions up, so that they add up to the rounded sum."""
    floors = np.floor(means)
    n_up = int(np.rint(means.sum()) - floors.sum())
    floors[np.argsort(floors - means, kind="stable")[: max(n_up, 0)]] += 1
    return _whole(floors)


def _whole(means: Floats) -> Int64s:
    """Return whole numbers as such; those beyond 63 bits are as large as can be."""
    return np.clip(means, -_LARGEST, _LARGEST).astype(np.int64)


class _Counts:
    """The values of each stack in one snapshot, kept dense, so that comparing takes no search."""

    def __init__(self, n_types: int) -> None:
        self._stacks = np.zeros(0, np.int64)
        self._values = self._spare = np.zeros((0, n_types), np.int64)

    def replace(self, stacks: Int64s, values: Int64s) -> bool:
        """Take the values (k, n_types) of another snapshot; return whether any stack has less in it."""
        if (n_stacks := int(stacks.max(initial=-1)) + 1) > len(self._values):
            rows = max(n_stacks, 2 * len(self._values))
            grown = np.zeros((rows, values.shape[1]), np.int64)
            if len(self._stacks):
                grown[self._stacks] = self._values[self._stacks]
            self._values, self._spare = grown, np.zeros_like(grown)
        now, before = self._spare, self._values
        np.add.at(now, stacks, values)
        fell = bool((now[self._stacks] < before[self._stacks]).any())
        before[self._stacks] = 0
        self._stacks, self._values, self._spare = stacks, now, before
        return fell


def _rows_of(profiles: SelectedProfiles, types: tuple[ValueType, ...]) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield the stacks (k,) of each profile, and their values of some types (k, n_types)."""
    for part in profiles.parts(types):
        stacks, values, offsets = part.chunk
        for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            yield stacks[begin:end], values[begin:end]
