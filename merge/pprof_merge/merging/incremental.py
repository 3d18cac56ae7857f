"""Merging any selection of a collection's profiles, and adding profiles to a merge: sums over rows in NumPy.

Go's result depends on the order of its inputs: samples, and all that they refer to, are in the order of first
appearance, and parts of the header are those of the first profile. Here profiles are always merged in the
order of `time_nanos`, then `digest`, so that the same set of profiles gives the same result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pprof_merge.arrays import Bools, Int32s, Int64s
from pprof_merge.columns.ragged import first_positions, rows_of_indexes
from pprof_merge.columns.views import view32
from pprof_merge.errors import ProfileError
from pprof_merge.merging.assembly import WHOLE, Totals, Uses, assemble, totals_of
from pprof_merge.merging.dictionary import Dictionary
from pprof_merge.merging.headers import combine_headers
from pprof_merge.merging.mapping_use import NUMBER
from pprof_merge.merging.selection import Part, SelectedProfiles, reorder_columns
from pprof_merge.merging.sums import PlainSums, Sums
from pprof_merge.profile import Header, Profile, ValueType


class Contribution(NamedTuple):
    """The samples of one profile: their rows in the merge (k,), -1 if gone, and their values (k, n_types)."""

    samples: Int64s
    values: Int64s


class IncrementalMerge:
    """A merge to which profiles can be added. `sums` adds up the values; by default without weights."""

    def __init__(self, dictionary: Dictionary, sums: Sums | None = None) -> None:
        self._dictionary = dictionary
        self._sums = sums or PlainSums()
        # The sample types of the columns of `_sums`.
        self._sum_types: tuple[ValueType, ...] = ()
        self._header: Header | None = None
        self._digest = b""
        # The stacks in the order of first appearance, and how many of them appear first in each profile.
        self._stacks: Int32s = np.zeros(0, np.int32)
        self._n_first: Int64s = np.zeros(0, np.int64)
        self._uses = Uses()

    def add(self, profiles: SelectedProfiles, is_new: Bools | None = None) -> None:
        """Add profiles, which are in the order of merging.

        Without `is_new`, the merge is empty and all profiles are added. With it (n,), `profiles` are all
        profiles of the merge, and the new ones among them, at least one, are added.

        Raises IncompatibleProfiles if the types of the profiles differ; then nothing is added.
        """
        if not len(profiles):
            return
        times, durations = profiles.times.tolist(), profiles.durations.tolist()
        self._header = combine_headers(profiles.headers(), times, durations)
        self._sum_types = self._sum_types or self._header.sample_types
        self._digest = hashlib.sha256(profiles.digests.tobytes()).digest()
        if is_new is None:
            self._stacks, self._n_first = self._add_profiles(profiles)
        else:
            self._insert(profiles, is_new)

    def _insert(self, profiles: SelectedProfiles, is_new: Bools) -> None:
        """Add the new profiles, and bring the stacks into the order of first appearance.

        Stacks that appear before the first new profile stay where they are. The others are sorted by their
        owners, the profiles in which they appear first.
        """
        old, new = np.flatnonzero(~is_new), np.flatnonzero(is_new)
        begin = new[0]
        before, after = np.split(self._stacks, [self._n_first[:begin].sum()])
        stacks, n_first = self._add_profiles(profiles.take(new))
        owners = np.concatenate((np.repeat(old[begin:], self._n_first[begin:]), np.repeat(new, n_first)))
        order = np.argsort(owners, kind="stable")
        stacks, owners = np.concatenate((after, stacks))[order], owners[order]
        is_known = np.zeros(self._dictionary.n_stacks, np.bool_)
        is_known[before] = True
        positions = first_positions(stacks, is_known)
        self._stacks = np.concatenate((before, stacks[positions]))
        n_first = np.bincount(owners[positions], minlength=len(profiles))
        n_first[:begin] = self._n_first[:begin]
        self._n_first = n_first

    def _add_profiles(self, profiles: SelectedProfiles) -> tuple[Int32s, Int64s]:
        """Add the values, mappings and inner columns of profiles.

        Return their distinct stacks in the order of first appearance, and how many of them appear in each
        profile first.
        """
        is_known = np.zeros(self._dictionary.n_stacks, np.bool_)
        self._sums.resize(len(is_known), len(self._sum_types))
        stacks, n_first = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        n_before = 0
        for part in profiles.parts(self._sum_types):
            self._add_attributes(part, profiles, n_before)
            n_before += len(part.mapping_offsets) - 1
            positions = first_positions(part.chunk.stacks, is_known)
            stacks.append(part.chunk.stacks[positions].astype(np.int32))
            n_first.append(np.diff(np.searchsorted(positions, part.chunk.offsets)))
            self._sums.add(part.chunk)
        return np.concatenate(stacks), np.concatenate(n_first)

    def _add_attributes(self, part: Part, profiles: SelectedProfiles, n_before: int) -> None:
        """Add the mappings of a part, which begins after `n_before` profiles, and its inner columns."""
        if len(part.mappings):
            rows = np.arange(len(part.mappings))
            owners = n_before + rows_of_indexes(part.mapping_offsets, rows)
            is_main = np.diff(owners, prepend=-1) != 0
            self._uses.add_main(profiles.sort_key(owners[0]), part.mappings[0].tolist())
            # The first use in the part is found here, so that few are left to compare.
            used = rows[~is_main]
            _, first_use = np.unique(part.mappings[used, NUMBER], return_index=True)
            for row in used[first_use].tolist():
                self._uses.add_mapping(profiles.sort_key(owners[row]), part.mappings[row].tolist())
        # NumPy's `unique` of an array alone imports `numpy.ma`, which takes as long as a small merge.
        for number in np.flatnonzero(np.bincount(part.inner_columns)).tolist():
            self._uses.add_inner_columns(self._dictionary.tables, number)

    @property
    def nbytes(self) -> int:
        """The approximate memory of the stacks and their sums in bytes."""
        sums = 8 * len(self._sum_types) * self._dictionary.n_stacks
        return self._stacks.nbytes + self._n_first.nbytes + sums

    def profile(self, depth: int | None = None) -> Profile:
        """Return the merged profile. With `depth`, each stack has at most `depth` locations, from the leaf.

        Raises ProfileError if no profile was added.
        """
        if self._header is None:
            raise ProfileError("there is no profile to merge")
        totals = self._totals(self._header)
        tables = self._dictionary.tables
        strings = tables.strings.since(0)
        columns = assemble(tables, strings, self._uses, totals, WHOLE if depth is None else depth)
        return Profile(self._header, columns, self._digest)

    def contributions(self, profiles: SelectedProfiles) -> Iterator[Contribution]:
        """Yield what each of these profiles contributes to `profile()`. All of them must have been added."""
        if self._header is None:
            return
        totals = self._totals(self._header)
        totals.drop_zeros()
        stacks = view32(totals.stacks, totals.n)
        sample_of = np.full(self._dictionary.n_stacks, -1)
        sample_of[stacks] = np.arange(len(stacks))
        for part in profiles.parts(self._header.sample_types):
            samples, values = sample_of[part.chunk.stacks], part.chunk.values
            for begin, end in pairwise(part.chunk.offsets.tolist()):
                yield Contribution(samples[begin:end], values[begin:end])

    def _totals(self, header: Header) -> Totals:
        """Return the stacks, in the order of first appearance, and their sums for the types of the header."""
        sums = reorder_columns(self._sums.take(self._stacks), self._sum_types, header.sample_types)
        return totals_of(sums.shape[1], self._stacks.tobytes(), sums.tobytes())
