"""Segments: what a collection has read since a mark, to be saved and loaded again.

Dictionaries and collections only grow, and numbers never change. So a collection is the sequence of all its
segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from pprof_merge.arrays import Int64s, Ints
from pprof_merge.columns.narrow import Narrow
from pprof_merge.merging.numbered import NumberedProfiles, PackedProfiles
from pprof_merge.profile import Header, ValueType


class Rows(NamedTuple):
    """Rows of one of `Numbering`'s tables: their words, one row after another, and their sizes (n,)."""

    words: Ints
    sizes: Int64s


class Counts(NamedTuple):
    """The number of entries of each kind in a dictionary."""

    strings: int
    headers: int
    mappings: int
    functions: int
    locations: int
    stacks: int
    label_sets: int
    inner_columns: int


class Entries(NamedTuple):
    """The entries of each kind that were added to a dictionary, in the order of their numbers."""

    strings: list[bytes]
    headers: list[Header]
    mappings: Rows
    functions: Rows
    locations: Rows
    stacks: Rows
    label_sets: Rows
    inner_columns: Rows


class Mark(NamedTuple):
    """The size of a collection at some moment: its number of profiles, and its dictionary's entries."""

    profiles: int
    counts: Counts


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """The dictionary entries and profiles that were added to a collection after some mark."""

    entries: Entries
    profiles: NumberedProfiles

    def packed(self) -> PackedSegment:
        """Return the same, as it is kept."""
        return PackedSegment(self.entries, self.profiles.packed())

    def is_sound(self) -> bool:
        """Return whether sizes fit, and profiles use entries of this segment alone, as in a first one.

        What the entries mean isn't checked. Raises any exception if a field isn't what it should be.
        """
        entries, profiles = self.entries, self.profiles
        ragged = (
            *((each.words, each.sizes) for each in entries if isinstance(each, Rows)),
            (profiles.stacks, profiles.stack_counts),
            (profiles.values, profiles.value_counts),
            (profiles.mappings, profiles.mapping_counts),
            (profiles.inner_columns, profiles.inner_column_counts),
        )
        numbers = (
            (profiles.headers, len(entries.headers)),
            (profiles.stacks, len(entries.stacks.sizes)),
            (profiles.inner_columns, len(entries.inner_columns.sizes)),
        )
        count = len(profiles.headers)
        lengths = [len(profiles.times), len(profiles.durations), len(profiles.digests)]
        lengths += [len(sizes) for _, sizes in ragged[-4:]]
        if not (
            all(length == count for length in lengths)
            and all(sizes.min(initial=0) >= 0 and sizes.sum() == len(rows) for rows, sizes in ragged)
            and all(each.min(initial=0) >= 0 and each.max(initial=-1) < of for each, of in numbers)
        ):
            return False
        n_types = np.array([len(header.sample_types) for header in entries.headers], np.int64)
        return bool((profiles.value_counts == profiles.stack_counts * n_types[profiles.headers]).all())


class PackedSegment(NamedTuple):
    """A segment with its profiles packed, in order."""

    entries: Entries
    profiles: list[PackedProfiles]


# The classes of the objects in a segment, besides arrays, lists, tuples, texts and numbers.
SEGMENT_PARTS: Final[tuple[type[Any], ...]] = (
    Segment,
    Entries,
    Rows,
    NumberedProfiles,
    Header,
    ValueType,
    PackedProfiles,
    Narrow,
)
