"""Sets of labels, each stored once under a number: the part of `Dictionary` that knows samples' labels."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pprof_merge.columns.interning import Interner
from pprof_merge.columns.row_table import Rows, RowTable
from pprof_merge.profile import Int64s, Ints, Labels


class Label(NamedTuple):
    """One label. `key`, `text` and `unit` are numbers of strings; `text` is -1 if the label is a number."""

    key: int
    text: int
    number: int
    unit: int


class LabelSetCounts(NamedTuple):
    """How many sets there are, and how many lists of labels in the order in which they were read."""

    sets: int
    unsorted: int


class LabelSetEntries(NamedTuple):
    """Label sets; lists of labels in the order in which they were read, and the number of each list's set."""

    sets: list[tuple[Label, ...]]
    unsorted: Rows
    set_of_unsorted: list[int]


class LabelSets:
    """Label sets by number. A set's labels are in Go's order: text labels by key, then numbers by key.

    Number 0 is the empty set.
    """

    def __init__(self) -> None:
        self._sets: Interner[tuple[Label, ...]] = Interner([()])
        # Lists of labels as they were read: key, text, number, unit of each label; and the set of each list.
        self._unsorted = RowTable([], [np.int32, np.int32, np.int64, np.int32])
        self._set_of_unsorted: list[int] = []

    def intern(self, labels: Labels, string_numbers: Int64s, strings: Interner[bytes]) -> Int64s:
        """Return the number of each sample's label set (n_samples,); new sets are added.

        `string_numbers` are the numbers, in `strings`, of the strings that the labels refer to.
        """
        if not len(labels):
            return np.zeros(len(labels.offsets) - 1, np.int64)
        text = np.where(labels.text < 0, -1, string_numbers[labels.text])
        columns = [string_numbers[labels.key], text, labels.number, string_numbers[labels.unit]]
        unsorted = self._unsorted.intern(Rows([], columns, labels.offsets))
        new = np.arange(len(self._set_of_unsorted), len(self._unsorted))
        if new.size:
            keys = list(strings)
            rows = self._unsorted.rows.take(new)
            every = [Label(*row) for row in zip(*(column.tolist() for column in rows.ragged), strict=True)]
            for begin, end in pairwise(rows.offsets.tolist()):
                ordered = sorted(every[begin:end], key=lambda label: (label.text < 0, keys[label.key]))
                self._set_of_unsorted.append(self._sets[tuple(ordered)])
        return np.array(self._set_of_unsorted)[unsorted]

    def absorb(self, other: LabelSets, string_numbers: Int64s) -> Int64s:
        """Add the sets of another table; return the number that each of them has here.

        `string_numbers` are the numbers here of the other table's strings.
        """

        def renumbered(label: Label) -> Label:
            text = int(string_numbers[label.text]) if label.text >= 0 else -1
            key, unit = int(string_numbers[label.key]), int(string_numbers[label.unit])
            return Label(key, text, label.number, unit)

        return self._sets.of(tuple(map(renumbered, labels)) for labels in other._sets)

    @property
    def counts(self) -> LabelSetCounts:
        """How many sets, and lists as they were read, there are."""
        return LabelSetCounts(len(self._sets), len(self._unsorted))

    def since(self, counts: LabelSetCounts) -> LabelSetEntries:
        """Return what was added since the table had these counts."""
        return LabelSetEntries(
            self._sets.since(counts.sets),
            self._unsorted.since(counts.unsorted),
            self._set_of_unsorted[counts.unsorted :],
        )

    def grow(self, entries: LabelSetEntries) -> None:
        """Add the entries that another table got when it was as this one is now."""
        self._sets.of(entries.sets)
        self._unsorted.append(entries.unsorted)
        self._set_of_unsorted += entries.set_of_unsorted

    def take(self, numbers: Ints) -> list[tuple[Label, ...]]:
        """Return the sets with these numbers."""
        sets = list(self._sets)
        return [sets[number] for number in numbers.tolist()]
