"""The dictionary: the strings, functions, mappings, locations, label sets and stacks of many profiles, each
once under a number, as NumPy sees them.

`numbering` fills the tables, and says which entries are the same; this reads them, in the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np

from pprof_merge.arrays import Int64s, Ints
from pprof_merge.columns.ragged import take_rows
from pprof_merge.columns.tables import IntTable, Table
from pprof_merge.columns.views import view32, view64
from pprof_merge.merging.batch import Batch, BatchProfile
from pprof_merge.merging.mapping_use import renumbered
from pprof_merge.merging.numbered import NumberedProfiles
from pprof_merge.merging.numbering import NumberedColumns, Numbering
from pprof_merge.merging.segment import Counts, Entries, Rows
from pprof_merge.profile import Header


class Label(NamedTuple):
    """One label. `key`, `text` and `unit` are numbers of strings; `text` is -1 if the label is a number."""

    key: int
    text: int
    number: int
    unit: int


class Dictionary:
    """Tables of what profiles refer to. Entries are numbered in order of arrival; numbers never change."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._headers_by_number: list[Header] = []

    @property
    def tables(self) -> Numbering:
        """The tables."""
        return self._batch.tables

    def take_profiles(self) -> NumberedProfiles:
        """Return the profiles of the batch, and empty it."""
        every, profiles = self._batch.take()
        left = iter(profiles)
        made = [_as_arrays(columns, [*islice(left, len(columns))]) for columns in every]
        return made[0] if len(made) == 1 else NumberedProfiles.joined(made)

    def strings(self) -> list[bytes]:
        """Return all strings, in the order of their numbers."""
        return self.tables.strings.since(0)

    @property
    def nbytes(self) -> int:
        """The approximate memory of the dictionary in bytes."""
        tables = self.tables
        stacks = _nbytes(tables.stacks, 4)
        names = _nbytes(tables.strings.table, 8) + 4 * len(tables.function_of_name)
        others = (tables.functions, tables.locations, tables.label_sets, tables.inner_columns)
        return names + stacks + sum(_nbytes(table, 8) for table in others)

    @property
    def headers(self) -> list[Header]:
        """The headers of all profiles by number, without times."""
        if len(self._headers_by_number) < len(self._batch.headers):
            self._headers_by_number += self._batch.headers.since(len(self._headers_by_number))
        return self._headers_by_number

    @property
    def n_stacks(self) -> int:
        """The number of stacks."""
        return self.tables.stacks.count

    def label_sets_of(self, stacks: Ints) -> Ints:
        """Return the number of each stack's label set (n,)."""
        table = self.tables.stacks
        ends = view64(table.ends, table.count + 1)
        return view32(table.words, int(ends[-1])).take(ends.take(stacks))

    def label_sets(self, numbers: Ints) -> list[tuple[Label, ...]]:
        """Return the label sets with these numbers."""
        words, offsets = _take(self.tables.label_sets, numbers)
        labels = [Label(*label) for label in words.reshape(-1, 4).tolist()]
        return [tuple(labels[begin // 4 : end // 4]) for begin, end in pairwise(offsets.tolist())]

    @property
    def counts(self) -> Counts:
        """The number of entries of each kind."""
        tables = self.tables
        return Counts(
            strings=len(tables.strings),
            headers=len(self._batch.headers),
            mappings=tables.mappings.count,
            functions=tables.functions.count,
            locations=tables.locations.count,
            stacks=tables.stacks.count,
            label_sets=tables.label_sets.count,
            inner_columns=tables.inner_columns.count,
        )

    def since(self, counts: Counts) -> Entries:
        """Return the entries that were added since the dictionary had these counts."""
        tables = self.tables
        return Entries(
            tables.strings.since(counts.strings),
            self._batch.headers.since(counts.headers),
            _since(tables.mappings, counts.mappings),
            _since(tables.functions, counts.functions),
            _since(tables.locations, counts.locations),
            _since(tables.stacks, counts.stacks),
            _since(tables.label_sets, counts.label_sets),
            _since(tables.inner_columns, counts.inner_columns),
        )

    def grow(self, entries: Entries) -> None:
        """Add the entries that another dictionary got when it was as this one is now."""
        tables = self.tables
        tables.strings.add(entries.strings)
        self._batch.headers.of(entries.headers)
        for table, rows in (
            (tables.mappings, entries.mappings),
            (tables.functions, entries.functions),
            (tables.locations, entries.locations),
            (tables.stacks, entries.stacks),
            (tables.label_sets, entries.label_sets),
            (tables.inner_columns, entries.inner_columns),
        ):
            table.append(rows.words.tobytes(), rows.sizes.tobytes())

    def absorb(self, other: Dictionary, every: Sequence[NumberedProfiles]) -> list[NumberedProfiles]:
        """Add all entries of another dictionary; return its profiles with the numbers of this one."""
        headers = np.array(self._batch.headers.of(other._batch.headers), np.int32)
        numbers = self.tables.absorb(other.tables)
        counts = other.counts
        texts = view64(numbers.texts, counts.strings)
        mappings = view64(numbers.mappings, counts.mappings)
        stacks = view64(numbers.stacks, counts.stacks).astype(np.int32)
        inner_columns = view64(numbers.inner_columns, counts.inner_columns).astype(np.int32)
        return [
            replace(
                numbered,
                headers=headers[numbered.headers],
                stacks=stacks[numbered.stacks],
                mappings=renumbered(numbered.mappings, mappings, texts),
                inner_columns=inner_columns[numbered.inner_columns],
            )
            for numbered in every
        ]


def _as_arrays(columns: NumberedColumns, profiles: Sequence[BatchProfile]) -> NumberedProfiles:
    """Return these profiles as arrays."""
    ends = np.array(columns.ends, np.int64)
    stack_counts, value_counts, mapping_counts, inner_column_counts = np.diff(ends, axis=0).T
    n_stacks, n_values, n_mappings, n_inner_columns = ends[-1].tolist()
    headers, times, durations, digests = zip(*profiles, strict=True) if profiles else ((), (), (), ())
    return NumberedProfiles(
        headers=np.array(headers, np.int32),
        times=np.array(times, np.int64),
        durations=np.array(durations, np.int64),
        digests=np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32),
        stack_counts=stack_counts,
        stacks=view32(columns.stacks, n_stacks).copy(),
        value_counts=value_counts,
        values=view64(columns.values, n_values).copy(),
        mapping_counts=mapping_counts,
        mappings=view64(columns.mappings, 7 * n_mappings).reshape(-1, 7).copy(),
        inner_column_counts=inner_column_counts,
        inner_columns=view64(columns.inner_columns, n_inner_columns).astype(np.int32),
    )


def _take(table: Table, numbers: Ints) -> tuple[Int64s, Int64s]:
    """Return copies of the rows with these numbers, one after another, and the offsets of each."""
    ends = view64(table.ends, table.count + 1)
    index, offsets = take_rows(ends, numbers.astype(np.int64, copy=False))
    return view64(table.words, int(ends[-1]))[index], offsets


def _since(table: Table | IntTable, number: int) -> Rows:
    """Return the rows from `number` on, as views of what is there now."""
    ends = view64(table.ends, table.count + 1)
    size = int(ends[-1])
    words = view32(table.words, size) if isinstance(table, IntTable) else view64(table.words, size)
    return Rows(words[ends[number] :], np.diff(ends[number:]))


def _nbytes(table: Table | IntTable, word_bytes: int) -> int:
    cells = len(table.slots) + len(table.hashes) + len(table.ends)
    return 8 * cells + word_bytes * len(table.words)
