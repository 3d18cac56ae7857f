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

from pprof_merge.batch import Batch
from pprof_merge.dictionary import Dictionary
from pprof_merge.errors import ProfileError
from pprof_merge.growing import Growing
from pprof_merge.headers import combine_headers
from pprof_merge.picked import Part, Picked, Place
from pprof_merge.profile import Header, Int32s, Int64s, Ints, Labels, Locations, Mappings, Profile, Samples
from pprof_merge.ragged import first_appearance, newly_appearing, offsets_of, renumber, take_rows
from pprof_merge.sums import PlainSums, Sums, are_counted
from pprof_merge.used_mappings import COLUMNS, NUMBER, mappings_of


def merge(profiles: Iterable[Profile]) -> Profile:
    """The merge of all profiles, which are taken one at a time and not kept.

    Raises IncompatibleProfiles where their types differ, and ProfileError where there is none.
    """
    dictionary = Dictionary()
    merged = Merge(dictionary)
    traces = [dictionary.intern(Batch.of(profile)) for profile in profiles]
    merged.add(Picked(traces, np.arange(len(traces)), dictionary.headers).in_order())
    return merged.profile()


class Contribution(NamedTuple):
    """What a profile has in a merge: k samples of the merge, -1 for none, and their (k, n_types) values."""

    samples: Int64s
    values: Int64s


class Merge:
    """A merge that can be added to, as long as what comes is later than what is in it.

    It is the sum of all, unless `sums` makes it a weighted one.
    """

    def __init__(self, dictionary: Dictionary, sums: Sums | None = None) -> None:
        self._dictionary = dictionary
        self._sums = sums or PlainSums()
        self._header: Header | None = None
        self._last = Place(-(1 << 63), b"")
        self._digest = hashlib.sha256()
        # Stacks in the order of first appearance, and which they are.
        self._order: Growing[np.int32] = Growing(np.int32)
        self._is_in = np.zeros(0, np.bool_)
        # The first profile's first mapping, and those used, by number: rows as `Traces` has them.
        self._main: dict[int, list[int]] = {}
        self._mappings: dict[int, list[int]] = {}
        # Those of a location's lines, by its number, where they are more than its key has.
        self._inner_columns: dict[int, tuple[int, ...]] = {}

    def follows(self, profiles: Picked) -> bool:
        """Whether all of these, which are in order, come after all that are in it."""
        return not len(profiles) or profiles.place(0) >= self._last

    def add(self, profiles: Picked) -> None:
        """Adds profiles that are in order.

        Raises IncompatibleProfiles where the types of one differ; then nothing is added.
        """
        if not len(profiles):
            return
        merged = [] if self._header is None else [self._header]
        self._header = combine_headers(merged, profiles.headers(), profiles.times, profiles.durations)
        self._last = profiles.place(-1)
        self._digest.update(profiles.digests.tobytes())
        self._make_room(len(self._header.sample_types))
        for part in profiles.parts(self._header.sample_types):
            self._use(part)
            self._order.append(newly_appearing(part.chunk.stacks, self._is_in).astype(np.int32))
            self._sums.add(part.chunk)

    def _use(self, part: Part) -> None:
        """Keeps the attributes at first use of mappings. Go keeps the inner columns that it sees first; the
        largest do not depend on the order.
        """
        if len(part.mappings):
            begins = part.mapping_offsets[:-1][np.diff(part.mapping_offsets) > 0]
            main = part.mappings[0].tolist()
            self._main = self._main or {main[NUMBER]: main}
            used = np.delete(part.mappings, begins, axis=0)
            _, first_use = np.unique(used[:, NUMBER], return_index=True)
            for mapping in used[first_use].tolist():
                self._mappings.setdefault(mapping[NUMBER], mapping)
        for location, columns in self._dictionary.inner_columns(np.unique(part.inner_columns)):
            self._inner_columns[location] = max(columns, self._inner_columns.get(location, ()))

    def profile(self, depth: int | None = None) -> Profile:
        """The merged profile, with the whole stacks or so many locations of each, from the leaf on.

        Raises ProfileError where nothing was added.
        """
        if self._header is None:
            raise ProfileError("there is no profile to merge")
        dictionary = self._dictionary
        stacks, values = self._sampled()
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
            digest=self._digest.digest(),
        )

    def contributions(self, profiles: Picked) -> Iterator[Contribution]:
        """What each of these profiles, which were all added, has in `profile()`."""
        if self._header is None:
            return
        stacks, _ = self._sampled()
        sample_of = np.full(len(self._is_in), -1)
        sample_of[stacks] = np.arange(len(stacks))
        for part in profiles.parts(self._header.sample_types):
            samples, values = sample_of[part.chunk.stacks], part.chunk.values
            for begin, end in pairwise(part.chunk.offsets.tolist()):
                yield Contribution(samples[begin:end], values[begin:end])

    def _sampled(self) -> tuple[Int32s, Int64s]:
        """Stacks and sums of the merged profile's samples, in its order: without those that are all 0."""
        stacks = self._order.view
        values = self._sums.take(stacks)
        is_counted = are_counted(values)
        return (stacks, values) if is_counted.all() else (stacks[is_counted], values[is_counted])

    def _make_room(self, n_types: int) -> None:
        """For the stacks that have come to the dictionary since."""
        n_stacks = self._dictionary.n_stacks
        self._sums.make_room(n_stacks, n_types)
        self._is_in = np.concatenate((self._is_in, np.zeros(n_stacks - len(self._is_in), np.bool_)))

    def _used_mappings(self, used: Ints) -> tuple[Mappings, Int64s]:
        """The main binary's mapping, then those used; and the row of each by number, -1 for number -1.

        The attributes are those of the profile that uses the mapping first.
        """
        attributes = self._mappings | self._main
        main = np.array(list(self._main), np.int64)
        numbers, row_of = first_appearance(np.concatenate((main, used[used >= 0])))
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
