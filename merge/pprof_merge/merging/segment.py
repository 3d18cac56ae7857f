"""Segments: what a collection has read since a mark, to be saved and loaded again.

Dictionaries and collections only grow, and numbers never change. So a collection is the sequence of all its
segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pprof_merge.columns.row_table import Rows
from pprof_merge.merging.label_sets import LabelSetCounts, LabelSetEntries
from pprof_merge.merging.traces import Traces
from pprof_merge.profile import Header


class Counts(NamedTuple):
    """How many entries of each kind a dictionary has."""

    strings: int
    headers: int
    mappings: int
    functions: int
    locations: int
    stacks: int
    label_sets: LabelSetCounts
    inner_columns: int


class Entries(NamedTuple):
    """The entries of each kind that were added to a dictionary, in the order of their numbers."""

    strings: list[bytes]
    headers: list[Header]
    mappings: list[tuple[int, int, int]]
    functions: Rows
    locations: Rows
    stacks: Rows
    label_sets: LabelSetEntries
    inner_columns: Rows


class Mark(NamedTuple):
    """The size of a collection at some moment: its number of profiles, and its dictionary's entries."""

    profiles: int
    counts: Counts


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """The dictionary entries and traces that were added to a collection after some mark."""

    entries: Entries
    traces: Traces
