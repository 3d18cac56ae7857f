"""Segments: what a collection has read since a mark, to be saved and loaded again.

Dictionaries and collections only grow, and numbers never change. So a collection is the sequence of all its
segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pprof_merge.arrays import Int64s, Ints
from pprof_merge.merging.numbered import NumberedProfiles
from pprof_merge.profile import Header


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
