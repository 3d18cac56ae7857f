"""The dictionary: strings, functions, mappings, locations, label sets and stacks of many profiles, each once.

Interning a profile returns its `Traces`: for each sample, the number of its stack and its values. Two entries
are the same if google/pprof's `profile.Merge` takes them for the same (its `key` methods):

    function    name, system name, file name, start line
    mapping     size rounded up to 4 KiB, offset, and build id or else file name
    location    mapping, address from the mapping's start, folded, function and line of every line,
                and the last line's column
    stack       locations, and labels sorted by key, those with text before those with a number
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pprof_merge.codec.batch import Batch
from pprof_merge.columns.interning import Interner
from pprof_merge.columns.ragged import offsets_of, rows_of_indexes, take_rows
from pprof_merge.columns.row_table import Rows, RowTable
from pprof_merge.merging.label_sets import Label, LabelSets
from pprof_merge.merging.mapping_use import MappingUse, mapping_rows, renumbered
from pprof_merge.merging.segment import Counts, Entries
from pprof_merge.merging.sums import nonzero_rows
from pprof_merge.merging.traces import Traces
from pprof_merge.profile import Bools, Functions, Header, Int64s, Ints, Lines, Mappings

# The memory of a string besides its bytes, its entry in the dict included.
_STRING_OVERHEAD_BYTES = 130
_ZERO, _ONE, _PAGE = np.uint64(0), np.uint64(1), np.uint64(0x1000)


class LocationRows(NamedTuple):
    """Locations: `mapping` is its number (-1: none), `address` is relative to the mapping's start."""

    mapping: Ints
    address: Ints
    folded: Bools
    lines: Lines


class Dictionary:
    """Tables of what profiles refer to. Entries are numbered in order of arrival; numbers never change."""

    def __init__(self) -> None:
        self.strings: Interner[bytes] = Interner([b""])
        # Headers without times, so that the profiles of one program share one.
        self._headers: Interner[Header] = Interner()
        self._headers_by_number: list[Header] = []
        # size, offset, build id or file name
        self._mappings: Interner[tuple[int, int, int]] = Interner()
        # name, system name, file name, start line
        self._functions = RowTable([np.int32, np.int32, np.int32, np.int64])
        # mapping, address, folded, last column; function and line of every line
        self._locations = RowTable([np.int32, np.int64, np.int32, np.int64], [np.int32, np.int64])
        # label set; locations
        self._stacks = RowTable([np.int32], [np.int32])
        self._label_sets = LabelSets()
        # location; column of every line
        self._inner_columns = RowTable([np.int32], [np.int64])
        # The bytes of the first `_n_sized_strings` strings: strings are never removed.
        self._n_sized_strings = self._string_bytes = 0

    def intern(self, batch: Batch) -> Traces:
        """Add what the profiles of a batch refer to; return their traces."""
        string_numbers = self.strings.of(batch.strings)
        mappings = self._intern_mappings(batch.mappings, string_numbers)
        functions = self._intern_functions(batch.functions, string_numbers)
        locations = self._intern_locations(batch, mappings, functions)
        inner_columns, inner_column_counts = self._intern_inner_columns(batch, locations)
        label_sets = self._label_sets.intern(batch.samples.labels, string_numbers, self.strings)
        samples, sample_offsets = batch.samples, batch.sample_offsets
        values, frames, frame_offsets = samples.values, samples.locations, samples.location_offsets
        is_kept = nonzero_rows(values)
        if not is_kept.all():
            kept = np.flatnonzero(is_kept)
            index, frame_offsets = take_rows(frame_offsets, kept)
            values, frames, label_sets = values[kept], frames[index], label_sets[kept]
            sample_offsets = offsets_of(is_kept)[sample_offsets]
        frames = frames.astype(np.intp, copy=False)  # once, rather than by NumPy for each use as an index
        numbers = locations.astype(np.int32).take(frames)
        stacks = self._stacks.intern(Rows([label_sets], [numbers], frame_offsets)).astype(np.int32)
        stack_counts = np.diff(sample_offsets)
        used = MappingUse(batch, frames, frame_offsets[sample_offsets], mappings)
        used_rows = [used.rows_of(profile) for profile in range(len(batch))]
        return Traces(
            headers=self._headers.of(map(_timeless, batch.headers)).astype(np.int32),
            times=np.array([header.time_nanos for header in batch.headers], np.int64),
            durations=np.array([header.duration_nanos for header in batch.headers], np.int64),
            digests=np.frombuffer(b"".join(batch.digests), np.uint8).reshape(len(batch), -1),
            stack_counts=stack_counts,
            stacks=stacks,
            value_counts=stack_counts * values.shape[1],
            values=values.ravel(),
            mapping_counts=np.array([len(rows) for rows in used_rows], np.int64),
            mappings=mapping_rows(mappings, batch.mappings, string_numbers)[
                [row for rows in used_rows for row in rows]
            ],
            inner_column_counts=inner_column_counts,
            inner_columns=inner_columns,
        )

    def _intern_mappings(self, mappings: Mappings, string_numbers: Int64s) -> Int64s:
        sizes = (mappings.limit - mappings.start + (_PAGE - _ONE)) // _PAGE * _PAGE
        build_id, filename = string_numbers[mappings.build_id], string_numbers[mappings.filename]
        names = np.where(build_id != 0, build_id, filename)
        columns = (sizes, mappings.offset, names)
        return self._mappings.of(zip(*(column.tolist() for column in columns), strict=True))

    def _intern_functions(self, functions: Functions, string_numbers: Int64s) -> Int64s:
        names = [
            string_numbers[column] for column in (functions.name, functions.system_name, functions.filename)
        ]
        return self._functions.intern(
            Rows([*names, functions.start_line], [], np.zeros(len(functions) + 1, np.int64))
        )

    def _intern_locations(self, batch: Batch, mappings: Int64s, functions: Int64s) -> Int64s:
        locations, lines = batch.locations, batch.locations.lines
        start = np.append(batch.mappings.start, _ZERO)  # row -1 is no mapping: nothing to subtract
        last_column = np.zeros(len(locations), np.int64)
        if lines.column.any():
            has_lines = np.flatnonzero(np.diff(lines.offsets))
            last_column[has_lines] = lines.column[lines.offsets[has_lines + 1] - 1]
        fixed = [
            np.append(mappings, -1)[locations.mapping],
            (locations.address - start[locations.mapping]).view(np.int64),
            locations.folded.astype(np.int64),
            last_column,
        ]
        return self._locations.intern(Rows(fixed, [functions[lines.function], lines.line], lines.offsets))

    def _intern_inner_columns(self, batch: Batch, locations: Int64s) -> tuple[Ints, Int64s]:
        """Return the numbers of all profiles' inner columns, and how many each profile has.

        Inner columns are the columns of a location's lines if any line but the last, whose column is in the
        location's key, has one. Few profilers write any.
        """
        lines, n_profiles = batch.locations.lines, len(batch)
        if not lines.column.any():
            return np.zeros(0, np.int32), np.zeros(n_profiles, np.int64)
        is_inner = lines.column != 0
        is_inner[lines.offsets[1:][np.diff(lines.offsets) > 0] - 1] = False
        rows = np.unique(rows_of_indexes(lines.offsets, np.flatnonzero(is_inner)))
        index, offsets = take_rows(lines.offsets, rows)
        numbers = self._inner_columns.intern(Rows([locations[rows]], [lines.column[index]], offsets))
        profiles = rows_of_indexes(batch.location_offsets, rows)
        return numbers.astype(np.int32), np.bincount(profiles, minlength=n_profiles)

    @property
    def nbytes(self) -> int:
        """The approximate memory of the dictionary in bytes."""
        if self._n_sized_strings < len(self.strings):
            self._string_bytes += sum(map(len, self.strings.since(self._n_sized_strings)))
            self._n_sized_strings = len(self.strings)
        tables = (self._functions, self._locations, self._stacks, self._inner_columns)
        strings = self._string_bytes + _STRING_OVERHEAD_BYTES * len(self.strings)
        return strings + sum(table.nbytes for table in tables)

    @property
    def headers(self) -> list[Header]:
        """The headers of all profiles by number, without times."""
        if len(self._headers_by_number) < len(self._headers):
            self._headers_by_number += self._headers.since(len(self._headers_by_number))
        return self._headers_by_number

    @property
    def n_stacks(self) -> int:
        """The number of stacks."""
        return len(self._stacks)

    def stacks(self, numbers: Ints, depth: int | None = None) -> tuple[Ints, Ints, Int64s]:
        """Return the stacks' label sets (n,), and their locations with offsets (n + 1), the leaf first.

        With `depth`, only so many locations of each stack are returned, from the leaf on.
        """
        rows = self._stacks.rows.take(numbers, depth)
        return rows.fixed[0], rows.ragged[0], rows.offsets

    def label_sets_of(self, stacks: Ints) -> Ints:
        """Return the number of each stack's label set (n,)."""
        return self._stacks.rows.fixed[0][stacks]

    def label_sets(self, numbers: Ints) -> list[tuple[Label, ...]]:
        """Return the label sets with these numbers."""
        return self._label_sets.take(numbers)

    def locations(self, numbers: Ints) -> LocationRows:
        """Return locations. Of the columns of a location's lines only the last is set; the others are 0."""
        (mapping, address, folded, last_column), (function, line), offsets = self._locations.rows.take(
            numbers
        )
        column = np.zeros(len(line), np.int64)
        has_lines = np.flatnonzero(np.diff(offsets))
        column[offsets[has_lines + 1] - 1] = last_column[has_lines]
        return LocationRows(mapping, address, folded != 0, Lines(function, line, column, offsets))

    def inner_columns(self, numbers: Ints) -> list[tuple[int, tuple[int, ...]]]:
        """Return, for each number of inner columns, the location's number and the columns of its lines."""
        (location,), (columns,), offsets = self._inner_columns.rows.take(numbers)
        every = columns.tolist()
        spans = pairwise(offsets.tolist())
        return [
            (number, tuple(every[begin:end]))
            for number, (begin, end) in zip(location.tolist(), spans, strict=True)
        ]

    @property
    def counts(self) -> Counts:
        """The number of entries of each kind."""
        return Counts(
            strings=len(self.strings),
            headers=len(self._headers),
            mappings=len(self._mappings),
            functions=len(self._functions),
            locations=len(self._locations),
            stacks=len(self._stacks),
            label_sets=self._label_sets.counts,
            inner_columns=len(self._inner_columns),
        )

    def since(self, counts: Counts) -> Entries:
        """Return the entries that were added since the dictionary had these counts."""
        return Entries(
            self.strings.since(counts.strings),
            self._headers.since(counts.headers),
            self._mappings.since(counts.mappings),
            self._functions.since(counts.functions),
            self._locations.since(counts.locations),
            self._stacks.since(counts.stacks),
            self._label_sets.since(counts.label_sets),
            self._inner_columns.since(counts.inner_columns),
        )

    def grow(self, entries: Entries) -> None:
        """Add the entries that another dictionary got when it was as this one is now."""
        self.strings.of(entries.strings)
        self._headers.of(entries.headers)
        self._mappings.of(entries.mappings)
        self._functions.append(entries.functions)
        self._locations.append(entries.locations)
        self._stacks.append(entries.stacks)
        self._label_sets.grow(entries.label_sets)
        self._inner_columns.append(entries.inner_columns)

    def absorb(self, other: Dictionary, every: Sequence[Traces]) -> list[Traces]:
        """Add all entries of another dictionary; return its traces with the numbers of this one."""
        string_numbers = self.strings.of(other.strings)
        headers = self._headers.of(other._headers).astype(np.int32)
        mappings = self._mappings.of(
            (size, offset, int(string_numbers[name])) for size, offset, name in other._mappings
        )
        (*names, start_line), _, offsets = other._functions.rows
        functions = self._functions.intern(
            Rows([*(string_numbers[name] for name in names), start_line], [], offsets)
        )
        (mapping, *rest), (function, line), offsets = other._locations.rows
        fixed = [np.append(mappings, -1)[mapping], *rest]
        locations = self._locations.intern(Rows(fixed, [functions[function], line], offsets))
        label_sets = self._label_sets.absorb(other._label_sets, string_numbers)
        (label_set,), (frames,), offsets = other._stacks.rows
        stacks = self._stacks.intern(Rows([label_sets[label_set]], [locations[frames]], offsets)).astype(
            np.int32
        )
        (location,), columns, offsets = other._inner_columns.rows
        inner_columns = self._inner_columns.intern(Rows([locations[location]], columns, offsets)).astype(
            np.int32
        )
        return [
            replace(
                traces,
                headers=headers[traces.headers],
                stacks=stacks[traces.stacks],
                mappings=renumbered(traces.mappings, mappings, string_numbers),
                inner_columns=inner_columns[traces.inner_columns],
            )
            for traces in every
        ]

    def functions(self, numbers: Ints) -> Functions:
        """Return the functions with these numbers."""
        return Functions(*self._functions.rows.take(numbers).fixed)


def _timeless(header: Header) -> Header:
    return replace(header, time_nanos=0, duration_nanos=0)
