"""What many profiles share: strings, functions, mappings, locations, label sets and stacks, each once.

Profiles that are interned leave `Traces`: for each sample, the number of its stack and its values. Two
things are the same where google/pprof's `profile.Merge` takes them for the same (its `key` methods):

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
from pprof_merge.merging.mapping_use import MappingUse, rows_of, translated
from pprof_merge.merging.segment import Counts, Entries
from pprof_merge.merging.sums import are_counted
from pprof_merge.merging.traces import Traces
from pprof_merge.profile import Bools, Functions, Header, Int64s, Ints, Lines, Mappings

# What a string takes besides its bytes, with its place in the dict.
_STRING_BYTES = 130
_ZERO, _ONE, _PAGE = np.uint64(0), np.uint64(1), np.uint64(0x1000)


class LocationRows(NamedTuple):
    """Some locations; `mapping` is a number of the dictionary (-1: none), `address` from its start on."""

    mapping: Ints
    address: Ints
    folded: Bools
    lines: Lines


class Dictionary:
    """The tables; numbers are given as things arrive and never change."""

    def __init__(self) -> None:
        self.strings: Interner[bytes] = Interner([b""])
        # Without times, so that those of one program are one.
        self._headers: Interner[Header] = Interner()
        self._headers_by_number: list[Header] = []
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
        # What the first so many strings take: they only ever come.
        self._n_texts_sized = self._texts_bytes = 0

    def intern(self, batch: Batch) -> Traces:
        """Takes in some profiles, as `decode` makes them."""
        texts = self.strings.of(batch.strings)
        mappings = self._intern_mappings(batch.mappings, texts)
        functions = self._intern_functions(batch.functions, texts)
        locations = self._intern_locations(batch, mappings, functions)
        inner_columns, inner_column_counts = self._intern_inner_columns(batch, locations)
        label_sets = self._label_sets.intern(batch.samples.labels, texts, self.strings)
        samples, sample_offsets = batch.samples, batch.sample_offsets
        values, frames, frame_offsets = samples.values, samples.locations, samples.location_offsets
        is_kept = are_counted(values)
        if not is_kept.all():
            kept = np.flatnonzero(is_kept)
            index, frame_offsets = take_rows(frame_offsets, kept)
            values, frames, label_sets = values[kept], frames[index], label_sets[kept]
            sample_offsets = offsets_of(is_kept)[sample_offsets]
        frames = frames.astype(np.intp, copy=False)  # as NumPy would for each use
        numbers = locations.astype(np.int32).take(frames)
        stacks = self._stacks.intern(Rows([label_sets], [numbers], frame_offsets)).astype(np.int32)
        stack_counts = np.diff(sample_offsets)
        used = MappingUse(batch, frames, frame_offsets[sample_offsets], mappings)
        used_rows = [used.of(profile) for profile in range(len(batch))]
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
            mappings=rows_of(mappings, batch.mappings, texts)[[row for rows in used_rows for row in rows]],
            inner_column_counts=inner_column_counts,
            inner_columns=inner_columns,
        )

    def _intern_mappings(self, mappings: Mappings, texts: Int64s) -> Int64s:
        sizes = (mappings.limit - mappings.start + (_PAGE - _ONE)) // _PAGE * _PAGE
        build_id, filename = texts[mappings.build_id], texts[mappings.filename]
        names = np.where(build_id != 0, build_id, filename)
        columns = (sizes, mappings.offset, names)
        return self._mappings.of(zip(*(column.tolist() for column in columns), strict=True))

    def _intern_functions(self, functions: Functions, texts: Int64s) -> Int64s:
        names = [texts[column] for column in (functions.name, functions.system_name, functions.filename)]
        return self._functions.intern(
            Rows([*names, functions.start_line], [], np.zeros(len(functions) + 1, np.int64))
        )

    def _intern_locations(self, batch: Batch, mappings: Int64s, functions: Int64s) -> Int64s:
        locations, lines = batch.locations, batch.locations.lines
        start = np.append(batch.mappings.start, _ZERO)  # row -1: no mapping, and nothing to subtract
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
        """The numbers of all profiles' inner columns, and how many each has. Few profilers write any."""
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
        """The memory it takes, about."""
        if self._n_texts_sized < len(self.strings):
            self._texts_bytes += sum(map(len, self.strings.since(self._n_texts_sized)))
            self._n_texts_sized = len(self.strings)
        tables = (self._functions, self._locations, self._stacks, self._inner_columns)
        texts = self._texts_bytes + _STRING_BYTES * len(self.strings)
        return texts + sum(table.nbytes for table in tables)

    @property
    def headers(self) -> list[Header]:
        """The headers of all profiles, without their times."""
        if len(self._headers_by_number) < len(self._headers):
            self._headers_by_number += self._headers.since(len(self._headers_by_number))
        return self._headers_by_number

    @property
    def n_stacks(self) -> int:
        """How many stacks there are."""
        return len(self._stacks)

    def stacks(self, numbers: Ints, depth: int | None = None) -> tuple[Ints, Ints, Int64s]:
        """Of some stacks: label sets, and locations with their offsets; not more of each than `depth`."""
        rows = self._stacks.rows.take(numbers, depth)
        return rows.fixed[0], rows.ragged[0], rows.offsets

    def label_sets_of(self, stacks: Ints) -> Ints:
        """The label set of each of some stacks."""
        return self._stacks.rows.fixed[0][stacks]

    def label_sets(self, numbers: Ints) -> list[tuple[Label, ...]]:
        """Some label sets."""
        return self._label_sets.take(numbers)

    def locations(self, numbers: Ints) -> LocationRows:
        """Of some locations: all columns, but of the lines' columns only each location's last."""
        (mapping, address, folded, last_column), (function, line), offsets = self._locations.rows.take(
            numbers
        )
        column = np.zeros(len(line), np.int64)
        has_lines = np.flatnonzero(np.diff(offsets))
        column[offsets[has_lines + 1] - 1] = last_column[has_lines]
        return LocationRows(mapping, address, folded != 0, Lines(function, line, column, offsets))

    def inner_columns(self, numbers: Ints) -> list[tuple[int, tuple[int, ...]]]:
        """Some inner columns: of which location, and those of its lines."""
        (location,), (columns,), offsets = self._inner_columns.rows.take(numbers)
        every = columns.tolist()
        spans = pairwise(offsets.tolist())
        return [
            (number, tuple(every[begin:end]))
            for number, (begin, end) in zip(location.tolist(), spans, strict=True)
        ]

    @property
    def counts(self) -> Counts:
        """How much there is of each kind."""
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
        """What has come since there was that much."""
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
        """Takes in what came to another dictionary, which was as this one is."""
        self.strings.of(entries.strings)
        self._headers.of(entries.headers)
        self._mappings.of(entries.mappings)
        self._functions.append(entries.functions)
        self._locations.append(entries.locations)
        self._stacks.append(entries.stacks)
        self._label_sets.grow(entries.label_sets)
        self._inner_columns.append(entries.inner_columns)

    def absorb(self, other: Dictionary, every: Sequence[Traces]) -> list[Traces]:
        """Takes in what another dictionary has; returns the traces left there as if they were left here."""
        texts = self.strings.of(other.strings)
        headers = self._headers.of(other._headers).astype(np.int32)
        mappings = self._mappings.of(
            (size, offset, int(texts[name])) for size, offset, name in other._mappings
        )
        (*names, start_line), _, offsets = other._functions.rows
        functions = self._functions.intern(Rows([*(texts[name] for name in names), start_line], [], offsets))
        (mapping, *rest), (function, line), offsets = other._locations.rows
        fixed = [np.append(mappings, -1)[mapping], *rest]
        locations = self._locations.intern(Rows(fixed, [functions[function], line], offsets))
        label_sets = self._label_sets.absorb(other._label_sets, texts)
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
                mappings=translated(traces.mappings, mappings, texts),
                inner_columns=inner_columns[traces.inner_columns],
            )
            for traces in every
        ]

    def functions(self, numbers: Ints) -> Functions:
        """Of some functions: all columns."""
        return Functions(*self._functions.rows.take(numbers).fixed)


def _timeless(header: Header) -> Header:
    return replace(header, time_nanos=0, duration_nanos=0)
