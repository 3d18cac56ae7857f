"""The labels of samples, each set of them once: a part of `Dictionary`."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pprof_merge.columns.interning import Interner
from pprof_merge.columns.row_table import Rows, RowTable
from pprof_merge.profile import Int64s, Ints, Labels


class Label(NamedTuple):
    """One label; `text` is -1 where it is a number. All but `number` are numbers of strings."""

    key: int
    text: int
    number: int
    unit: int


class LabelSetCounts(NamedTuple):
    """How many sets there are, and how many as they came."""

    sets: int
    unsorted: int


class LabelSetEntries(NamedTuple):
    """Sets, and labels as they came with the set that each row of them is."""

    sets: list[tuple[Label, ...]]
    unsorted: Rows
    set_of_unsorted: list[int]


class LabelSets:
    """Sets of labels by number: sorted by key, those with text before those with a number, as Go has them.

    Number 0 is the empty set.
    """

    def __init__(self) -> None:
        self._sets: Interner[tuple[Label, ...]] = Interner([()])
        # Labels as they come: key, text, number, unit; and the set that each of these rows is.
        self._unsorted = RowTable([], [np.int32, np.int32, np.int64, np.int32])
        self._set_of_unsorted: list[int] = []

    def intern(self, labels: Labels, texts: Int64s, strings: Interner[bytes]) -> Int64s:
        """The number of each sample's label set, (n_samples,)."""
        if not len(labels):
            return np.zeros(len(labels.offsets) - 1, np.int64)
        text = np.where(labels.text < 0, -1, texts[labels.text])
        columns = [texts[labels.key], text, labels.number, texts[labels.unit]]
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

    def absorb(self, other: LabelSets, texts: Int64s) -> Int64s:
        """The number that each set of another table has here; `texts` are the numbers of its strings."""

        def translated(label: Label) -> Label:
            text = int(texts[label.text]) if label.text >= 0 else -1
            return Label(int(texts[label.key]), text, label.number, int(texts[label.unit]))

        return self._sets.of(tuple(map(translated, labels)) for labels in other._sets)

    @property
    def counts(self) -> LabelSetCounts:
        """How much there is."""
        return LabelSetCounts(len(self._sets), len(self._unsorted))

    def since(self, counts: LabelSetCounts) -> LabelSetEntries:
        """What has come since there was that much."""
        return LabelSetEntries(
            self._sets.since(counts.sets),
            self._unsorted.since(counts.unsorted),
            self._set_of_unsorted[counts.unsorted :],
        )

    def grow(self, entries: LabelSetEntries) -> None:
        """Takes in what came to another table, which was as this one is."""
        self._sets.of(entries.sets)
        self._unsorted.append(entries.unsorted)
        self._set_of_unsorted += entries.set_of_unsorted

    def take(self, numbers: Ints) -> list[tuple[Label, ...]]:
        """Some sets."""
        sets = list(self._sets)
        return [sets[number] for number in numbers.tolist()]
