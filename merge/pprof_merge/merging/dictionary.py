"""The dictionary: the strings, functions, mappings, locations, label sets and stacks of many profiles, each
once under a number, as NumPy sees them.

`numbering` fills the tables, and says which entries are the same; this reads them, in the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pprof_merge.codec.decode import digest_of, header_of
from pprof_merge.codec.reader import Reader
from pprof_merge.columns.interning import Interner
from pprof_merge.columns.ragged import offsets_of, span_chunks, take_rows
from pprof_merge.columns.tables import IntTable, Table
from pprof_merge.columns.views import view32, view64
from pprof_merge.merging.mapping_use import renumbered
from pprof_merge.merging.numbering import Numbering
from pprof_merge.merging.segment import Counts, Entries, Rows
from pprof_merge.merging.traces import Traces
from pprof_merge.profile import Bools, Functions, Header, Int64s, Ints, Lines

# The memory of a string besides its bytes, its entry in the dict included.
_STRING_OVERHEAD_BYTES = 130


class Label(NamedTuple):
    """One label. `key`, `text` and `unit` are numbers of strings; `text` is -1 if the label is a number."""

    key: int
    text: int
    number: int
    unit: int


class LocationRows(NamedTuple):
    """Locations: `mapping` is its number (-1: none), `address` is relative to the mapping's start."""

    mapping: Ints
    address: Ints
    folded: Bools
    lines: Lines


class Dictionary:
    """Tables of what profiles refer to. Entries are numbered in order of arrival; numbers never change."""

    def __init__(self) -> None:
        self._tables = Numbering()
        # Headers without times, so that the profiles of one program share one.
        self._headers: Interner[Header] = Interner()
        self._headers_by_number: list[Header] = []
        # What `take_traces` returns next, besides the columns that `Numbering` keeps: a row a profile.
        self._new: list[tuple[int, int, int, bytes]] = []
        # The bytes of the first `_n_sized_strings` strings: strings are never removed.
        self._n_sized_strings = self._string_bytes = 0

    def add(self, profile: Reader, digest: bytes | None = None) -> None:
        """Add what a profile refers to; `take_traces` returns its traces."""
        header = header_of(profile)
        number = self._headers[replace(header, time_nanos=0, duration_nanos=0)]
        self._tables.add(profile)
        self._new.append((number, header.time_nanos, header.duration_nanos, digest or digest_of(profile)))

    def take_traces(self) -> Traces:
        """Return the traces of the profiles that were added since the last call."""
        columns, new = self._tables.traces, self._new
        ends = np.array(columns.ends, np.int64)
        stack_counts, value_counts, mapping_counts, inner_column_counts = np.diff(ends, axis=0).T
        n_stacks, n_values, n_mappings, n_inner_columns = ends[-1].tolist()
        headers, times, durations, digests = zip(*new, strict=True) if new else ((), (), (), ())
        traces = Traces(
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
        columns.clear()
        self._new = []
        return traces

    @property
    def strings(self) -> dict[bytes, int]:
        """The number of each string, in the order of the numbers."""
        return self._tables.strings

    @property
    def nbytes(self) -> int:
        """The approximate memory of the dictionary in bytes."""
        if self._n_sized_strings < len(self.strings):
            strings = list(self.strings)[self._n_sized_strings :]
            self._string_bytes += sum(map(len, strings))
            self._n_sized_strings = len(self.strings)
        tables = self._tables
        stacks = _nbytes(tables.stacks, 4)
        others = (tables.functions, tables.locations, tables.label_sets, tables.inner_columns)
        strings_bytes = self._string_bytes + _STRING_OVERHEAD_BYTES * len(self.strings)
        return strings_bytes + stacks + sum(_nbytes(table, 8) for table in others)

    @property
    def headers(self) -> list[Header]:
        """The headers of all profiles by number, without times."""
        if len(self._headers_by_number) < len(self._headers):
            self._headers_by_number += self._headers.since(len(self._headers_by_number))
        return self._headers_by_number

    @property
    def n_stacks(self) -> int:
        """The number of stacks."""
        return self._tables.stacks.count

    def stacks(self, numbers: Ints, depth: int | None = None) -> tuple[Ints, Ints, Int64s]:
        """Return the stacks' label sets (n,), and their locations with offsets (n + 1), the leaf first.

        With `depth`, only so many locations of each stack are returned, from the leaf on.
        """
        table = self._tables.stacks
        ends = view64(table.ends, table.count + 1)
        words = view32(table.words, int(ends[-1]))
        starts = ends.take(numbers) + 1
        counts = ends[1:].take(numbers) - starts
        if depth is not None:
            counts = np.minimum(counts, depth)
        offsets = offsets_of(counts)
        locations = np.empty(offsets[-1], np.int32)
        for values, index in span_chunks(starts, counts):
            words.take(index, out=locations[values], mode="clip")  # other modes buffer `out`
        return words.take(starts - 1), locations, offsets

    def label_sets_of(self, stacks: Ints) -> Ints:
        """Return the number of each stack's label set (n,)."""
        table = self._tables.stacks
        ends = view64(table.ends, table.count + 1)
        return view32(table.words, int(ends[-1])).take(ends.take(stacks))

    def label_sets(self, numbers: Ints) -> list[tuple[Label, ...]]:
        """Return the label sets with these numbers."""
        words, offsets = _take(self._tables.label_sets, numbers)
        labels = [Label(*label) for label in words.reshape(-1, 4).tolist()]
        return [tuple(labels[begin // 4 : end // 4]) for begin, end in pairwise(offsets.tolist())]

    def locations(self, numbers: Ints) -> LocationRows:
        """Return locations. Of the columns of a location's lines only the last is set; the others are 0."""
        words, offsets = _take(self._tables.locations, numbers)
        starts = offsets[:-1]
        is_line = np.ones(len(words), np.bool_)
        for cell in range(4):
            is_line[starts + cell] = False
        lines = words[is_line].reshape(-1, 2)
        line_offsets = (offsets - 4 * np.arange(len(offsets))) // 2
        column = np.zeros(len(lines), np.int64)
        has_lines = np.flatnonzero(np.diff(line_offsets))
        column[line_offsets[has_lines + 1] - 1] = words[starts + 3][has_lines]
        return LocationRows(
            words[starts],
            words[starts + 1],
            words[starts + 2] != 0,
            Lines(lines[:, 0], lines[:, 1], column, line_offsets),
        )

    def functions(self, numbers: Ints) -> Functions:
        """Return the functions with these numbers."""
        table = self._tables.functions
        return Functions(*view64(table.words, 4 * table.count).reshape(-1, 4)[numbers].T)

    def inner_columns(self, numbers: Ints) -> list[tuple[int, tuple[int, ...]]]:
        """Return, for each number of inner columns, the location's number and the columns of its lines."""
        words, offsets = _take(self._tables.inner_columns, numbers)
        every = words.tolist()
        return [(every[begin], tuple(every[begin + 1 : end])) for begin, end in pairwise(offsets.tolist())]

    @property
    def counts(self) -> Counts:
        """The number of entries of each kind."""
        tables = self._tables
        return Counts(
            strings=len(tables.strings),
            headers=len(self._headers),
            mappings=tables.mappings.count,
            functions=tables.functions.count,
            locations=tables.locations.count,
            stacks=tables.stacks.count,
            label_sets=tables.label_sets.count,
            inner_columns=tables.inner_columns.count,
        )

    def since(self, counts: Counts) -> Entries:
        """Return the entries that were added since the dictionary had these counts."""
        tables = self._tables
        return Entries(
            list(tables.strings)[counts.strings :],
            self._headers.since(counts.headers),
            _since(tables.mappings, counts.mappings),
            _since(tables.functions, counts.functions),
            _since(tables.locations, counts.locations),
            _since(tables.stacks, counts.stacks),
            _since(tables.label_sets, counts.label_sets),
            _since(tables.inner_columns, counts.inner_columns),
        )

    def grow(self, entries: Entries) -> None:
        """Add the entries that another dictionary got when it was as this one is now."""
        tables = self._tables
        tables.strings.update(zip(entries.strings, range(len(tables.strings), 1 << 62), strict=False))
        self._headers.of(entries.headers)
        for table, rows in (
            (tables.mappings, entries.mappings),
            (tables.functions, entries.functions),
            (tables.locations, entries.locations),
            (tables.stacks, entries.stacks),
            (tables.label_sets, entries.label_sets),
            (tables.inner_columns, entries.inner_columns),
        ):
            table.append(rows.words.tobytes(), rows.sizes.tobytes())

    def absorb(self, other: Dictionary, every: Sequence[Traces]) -> list[Traces]:
        """Add all entries of another dictionary; return its traces with the numbers of this one."""
        headers = self._headers.of(other._headers).astype(np.int32)
        numbers = self._tables.absorb(other._tables)
        counts = other.counts
        texts = view64(numbers.texts, counts.strings)
        mappings = view64(numbers.mappings, counts.mappings)
        stacks = view64(numbers.stacks, counts.stacks).astype(np.int32)
        inner_columns = view64(numbers.inner_columns, counts.inner_columns).astype(np.int32)
        return [
            replace(
                traces,
                headers=headers[traces.headers],
                stacks=stacks[traces.stacks],
                mappings=renumbered(traces.mappings, mappings, texts),
                inner_columns=inner_columns[traces.inner_columns],
            )
            for traces in every
        ]


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
