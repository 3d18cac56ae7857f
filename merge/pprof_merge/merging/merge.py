"""Many profiles → one, as google/pprof's `profile.Merge`: sum the traces of all, build the tables.

Go's result depends on the order of its inputs: samples, and all that hangs off them, come in the order
of first appearance, and some of the header is the first profile's. Here the order is always that of
`time_nanos`, then `digest`, so that the same set of profiles gives the same result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pprof_merge.codec.batch import Batch
from pprof_merge.columns.ragged import (
    first_appearance,
    first_positions,
    offsets_of,
    renumber,
    rows_of_indexes,
    take_rows,
)
from pprof_merge.errors import ProfileError
from pprof_merge.merging.dictionary import Dictionary
from pprof_merge.merging.headers import combine_headers, in_columns
from pprof_merge.merging.mapping_use import COLUMNS, NUMBER, mappings_of
from pprof_merge.merging.selection import Part, Place, SelectedTraces
from pprof_merge.merging.sums import PlainSums, Sums, are_counted
from pprof_merge.profile import (
    Bools,
    Header,
    Int32s,
    Int64s,
    Ints,
    Labels,
    Locations,
    Mappings,
    Profile,
    Samples,
    ValueType,
)


def merge(profiles: Iterable[Profile]) -> Profile:
    """The merge of all profiles, which are taken one at a time and not kept.

    Raises IncompatibleProfiles where their types differ, and ProfileError where there is none.
    """
    dictionary = Dictionary()
    merged = Merge(dictionary)
    traces = [dictionary.intern(Batch.of(profile)) for profile in profiles]
    merged.add(SelectedTraces(traces, np.arange(len(traces)), dictionary.headers).in_order())
    return merged.profile()


class Contribution(NamedTuple):
    """What a profile has in a merge: k samples of the merge, -1 for none, and their (k, n_types) values."""

    samples: Int64s
    values: Int64s


class _FirstUse(NamedTuple):
    """The place of the profile that uses a mapping first, and the mapping's row there."""

    place: Place
    mapping: list[int]


class Merge:
    """A merge that can be added to: the sum of all, unless `sums` makes it a weighted one."""

    def __init__(self, dictionary: Dictionary, sums: Sums | None = None) -> None:
        self._dictionary = dictionary
        self._sums = sums or PlainSums()
        # The types of what is summed, in the order of its columns.
        self._summed: tuple[ValueType, ...] = ()
        self._header: Header | None = None
        self._digest = b""
        # Stacks in the order of first appearance, and of how many each profile, in order, is the first.
        self._stacks: Int32s = np.zeros(0, np.int32)
        self._n_first: Int64s = np.zeros(0, np.int64)
        # The first profile's first mapping; those used, by number.
        self._main: _FirstUse | None = None
        self._mappings: dict[int, _FirstUse] = {}
        # Those of a location's lines, by its number, where they are more than its key has.
        self._inner_columns: dict[int, tuple[int, ...]] = {}

    def add(self, profiles: SelectedTraces, is_new: Bools | None = None) -> None:
        """Adds profiles that are in order: all, or those that are new (n,) among all that are then in it,
        which is one at least.

        Raises IncompatibleProfiles where the types of one differ; then nothing is added.
        """
        if not len(profiles):
            return
        self._header = combine_headers(profiles.headers(), profiles.times, profiles.durations)
        self._summed = self._summed or self._header.sample_types
        self._digest = hashlib.sha256(profiles.digests.tobytes()).digest()
        if is_new is None:
            self._stacks, self._n_first = self._take_in(profiles)
        else:
            self._insert(profiles, is_new)

    def _insert(self, profiles: SelectedTraces, is_new: Bools) -> None:
        """Adds the new ones. Stacks stand as before up to the first of them, and from there by their owners,
        the profiles that have them, of which the earliest counts.
        """
        old, new = np.flatnonzero(~is_new), np.flatnonzero(is_new)
        begin = new[0]
        before, after = np.split(self._stacks, [self._n_first[:begin].sum()])
        stacks, n_first = self._take_in(profiles.take(new))
        owners = np.concatenate((np.repeat(old[begin:], self._n_first[begin:]), np.repeat(new, n_first)))
        order = np.argsort(owners, kind="stable")
        stacks, owners = np.concatenate((after, stacks))[order], owners[order]
        is_in = np.zeros(self._dictionary.n_stacks, np.bool_)
        is_in[before] = True
        places = first_positions(stacks, is_in)
        self._stacks = np.concatenate((before, stacks[places]))
        n_first = np.bincount(owners[places], minlength=len(profiles))
        n_first[:begin] = self._n_first[:begin]
        self._n_first = n_first

    def _take_in(self, profiles: SelectedTraces) -> tuple[Int32s, Int64s]:
        """Adds profiles, all but where their stacks stand: these, and of how many each is the first."""
        is_in = np.zeros(self._dictionary.n_stacks, np.bool_)
        self._sums.make_room(len(is_in), len(self._summed))
        stacks, n_first = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        n_before = 0
        for part in profiles.parts(self._summed):
            self._use(part, profiles, n_before)
            n_before += len(part.mapping_offsets) - 1
            places = first_positions(part.chunk.stacks, is_in)
            stacks.append(part.chunk.stacks[places].astype(np.int32))
            n_first.append(np.diff(np.searchsorted(places, part.chunk.offsets)))
            self._sums.add(part.chunk)
        return np.concatenate(stacks), np.concatenate(n_first)

    def _use(self, part: Part, profiles: SelectedTraces, n_before: int) -> None:
        """Keeps the attributes at first use of mappings. Go keeps the inner columns that it sees first; the
        largest do not depend on the order.
        """
        if len(part.mappings):
            rows = np.arange(len(part.mappings))
            owners = n_before + rows_of_indexes(part.mapping_offsets, rows)

            def use(row: int) -> _FirstUse:
                return _FirstUse(profiles.place(owners[row]), part.mappings[row].tolist())

            self._main = min(self._main or use(0), use(0))
            used = rows[np.diff(owners, prepend=-1) == 0]
            numbers, first_use = np.unique(part.mappings[used, NUMBER], return_index=True)
            for number, row in zip(numbers.tolist(), used[first_use].tolist(), strict=True):
                self._mappings[number] = min(self._mappings.get(number, use(row)), use(row))
        for location, columns in self._dictionary.inner_columns(np.unique(part.inner_columns)):
            self._inner_columns[location] = max(columns, self._inner_columns.get(location, ()))

    def profile(self, depth: int | None = None) -> Profile:
        """The merged profile, with the whole stacks or so many locations of each, from the leaf on.

        Raises ProfileError where nothing was added.
        """
        if self._header is None:
            raise ProfileError("there is no profile to merge")
        dictionary = self._dictionary
        stacks, values = self._sampled(self._header)
        label_sets, frames, frame_offsets = dictionary.stacks(stacks, depth)
        location_numbers, location_rows = first_appearance(frames)
        renumber(frames, location_rows)
        locations = dictionary.locations(location_numbers)
        for number, columns in self._inner_columns.items():
            if number < len(location_rows) and (row := location_rows[number]) >= 0:
                lines = slice(*locations.lines.offsets[row : row + 2])
                locations.lines.column[lines] = columns
        mappings, mapping_rows = self._used_mappings(locations.mapping)
        mapping = mapping_rows[locations.mapping]
        function_numbers, function_rows = first_appearance(locations.lines.function)
        return Profile(
            header=self._header,
            samples=Samples(
                values,
                frames,
                frame_offsets,
                _labels(dictionary, label_sets),
            ),
            mappings=mappings,
            locations=Locations(
                mapping=mapping,
                address=locations.address.view(np.uint64) + np.append(mappings.start, np.uint64(0))[mapping],
                folded=locations.folded,
                lines=replace(locations.lines, function=function_rows[locations.lines.function]),
            ),
            functions=dictionary.functions(function_numbers),
            strings=list(dictionary.strings),
            digest=self._digest,
        )

    def contributions(self, profiles: SelectedTraces) -> Iterator[Contribution]:
        """What each of these profiles, which were all added, has in `profile()`."""
        if self._header is None:
            return
        stacks, _ = self._sampled(self._header)
        sample_of = np.full(self._dictionary.n_stacks, -1)
        sample_of[stacks] = np.arange(len(stacks))
        for part in profiles.parts(self._header.sample_types):
            samples, values = sample_of[part.chunk.stacks], part.chunk.values
            for begin, end in pairwise(part.chunk.offsets.tolist()):
                yield Contribution(samples[begin:end], values[begin:end])

    def _sampled(self, header: Header) -> tuple[Int32s, Int64s]:
        """Stacks and sums of the merged profile's samples, in its order: without those that are all 0."""
        stacks = self._stacks
        values = in_columns(self._sums.take(stacks), self._summed, header.sample_types)
        is_counted = are_counted(values)
        return (stacks, values) if is_counted.all() else (stacks[is_counted], values[is_counted])

    def _used_mappings(self, used: Ints) -> tuple[Mappings, Int64s]:
        """The main binary's mapping, then those used; and the row of each by number, -1 for number -1.

        The attributes are those of the profile that uses the mapping first.
        """
        attributes = {number: use.mapping for number, use in self._mappings.items()}
        main = [] if self._main is None else [self._main.mapping]
        attributes.update((mapping[NUMBER], mapping) for mapping in main)
        of_main = np.array([mapping[NUMBER] for mapping in main], np.int64)
        numbers, row_of = first_appearance(np.concatenate((of_main, used[used >= 0])))
        rows = np.array([attributes[number] for number in numbers.tolist()], np.int64)
        return mappings_of(rows.reshape(-1, len(COLUMNS))), np.append(row_of, -1)


def _labels(dictionary: Dictionary, label_sets: Ints) -> Labels:
    numbers, row_of = first_appearance(label_sets)
    sets = dictionary.label_sets(numbers)
    columns = np.array([label for labels in sets for label in labels], np.int64).reshape(-1, 4)
    set_offsets = offsets_of(np.array([len(labels) for labels in sets], np.int64))
    index, offsets = take_rows(set_offsets, row_of[label_sets])
    key, text, number, unit = columns[index].T
    return Labels(key, text, number, unit, offsets)
