"""Segments: what a collection took in since it was marked, to be kept elsewhere and taken in again.

Dictionaries and collections only grow, and numbers never change, so that a collection is all its segments,
one after another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pprof_merge.columns.row_table import Rows
from pprof_merge.merging.label_sets import LabelSetCounts, LabelSetEntries
from pprof_merge.merging.traces import Traces
from pprof_merge.profile import Header


class Counts(NamedTuple):
    """How much of each kind a dictionary has."""

    strings: int
    headers: int
    mappings: int
    functions: int
    locations: int
    stacks: int
    label_sets: LabelSetCounts
    inner_columns: int


class Entries(NamedTuple):
    """What of each kind has come to a dictionary, in the order of its numbers."""

    strings: list[bytes]
    headers: list[Header]
    mappings: list[tuple[int, int, int]]
    functions: Rows
    locations: Rows
    stacks: Rows
    label_sets: LabelSetEntries
    inner_columns: Rows


class Mark(NamedTuple):
    """How far a collection was: so many profiles, and what its dictionary had."""

    profiles: int
    counts: Counts


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """What came to a collection."""

    entries: Entries
    traces: Traces
