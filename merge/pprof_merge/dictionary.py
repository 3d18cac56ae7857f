"""What many profiles share: strings, functions, mappings, locations, label sets and stacks, each once.

A profile that is interned leaves `Traces`: for each sample, the number of its stack and its values. Two
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

from pprof_merge.batch import Batch
from pprof_merge.label_sets import Label, LabelSets
from pprof_merge.numbering import Numbers
from pprof_merge.profile import Bools, Functions, Int64s, Ints, Lines, Mappings
from pprof_merge.ragged import offsets_of, rows_at, take_rows
from pprof_merge.row_table import Rows, RowTable
from pprof_merge.segment import Counts, Entries
from pprof_merge.sums import are_counted
from pprof_merge.traces import InnerColumns, Traces, add_inner_columns
from pprof_merge.used_mappings import Mapping, UsedMappings

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
        self.strings: Numbers[bytes] = Numbers([b""])
        self._mappings: Numbers[tuple[int, int, int]] = Numbers()
        # name, system name, file name, start line
        self._functions = RowTable([np.int32, np.int32, np.int32, np.int64])
        # mapping, address, folded, last column; function and line of every line
        self._locations = RowTable([np.int32, np.int64, np.int32, np.int64], [np.int32, np.int64])
        # label set; locations
        self._stacks = RowTable([np.int32], [np.int32])
        self._label_sets = LabelSets()
        # What the first so many strings take: they only ever come.
        self._n_texts_sized = self._texts_bytes = 0

    def intern(self, batch: Batch) -> list[Traces]:
        """Takes in some profiles, as `decode` makes them."""
        texts = self.strings.of(batch.strings)
        mappings, mapping_numbers = self._intern_mappings(batch.mappings, texts)
        functions = self._intern_functions(batch.functions, texts)
        locations = self._intern_locations(batch, mapping_numbers, functions)
        inner_columns = _inner_columns(batch, locations)
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
        used = UsedMappings(batch, frames, frame_offsets[sample_offsets], mappings, mapping_numbers)
        return [
            Traces(
                header=batch.headers[profile],
                digest=batch.digests[profile],
                stacks=stacks[begin:end],
                values=values[begin:end],
                main=used.main(profile),
                mappings=used.at_first_use(profile),
                inner_columns=inner_columns[profile],
            )
            for profile, (begin, end) in enumerate(pairwise(sample_offsets.tolist()))
        ]

    def _intern_mappings(self, mappings: Mappings, texts: Int64s) -> tuple[list[Mapping], Int64s]:
        attributes = [
            Mapping(start, limit, offset, filename, build_id, tuple(flags))
            for start, limit, offset, filename, build_id, flags in zip(
                mappings.start.tolist(),
                mappings.limit.tolist(),
                mappings.offset.tolist(),
                texts[mappings.filename].tolist(),
                texts[mappings.build_id].tolist(),
                mappings.flags.tolist(),
                strict=True,
            )
        ]
        sizes = (mappings.limit - mappings.start + (_PAGE - _ONE)) // _PAGE * _PAGE
        return attributes, self._mappings.of(
            [
                (size, mapping.offset, mapping.build_id or mapping.filename)
                for size, mapping in zip(sizes.tolist(), attributes, strict=True)
            ]
        )

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

    @property
    def nbytes(self) -> int:
        """The memory it takes, about."""
        if self._n_texts_sized < len(self.strings):
            self._texts_bytes += sum(map(len, self.strings.since(self._n_texts_sized)))
            self._n_texts_sized = len(self.strings)
        tables = (self._functions, self._locations, self._stacks)
        texts = self._texts_bytes + _STRING_BYTES * len(self.strings)
        return texts + sum(table.nbytes for table in tables)

    @property
    def n_stacks(self) -> int:
        """How many stacks there are."""
        return len(self._stacks)

    def stacks(self, numbers: Ints) -> tuple[Ints, Ints, Int64s]:
        """Of some stacks: label sets, and locations with their offsets."""
        rows = self._stacks.take(numbers)
        return rows.fixed[0], rows.ragged[0], rows.offsets

    def label_sets_of(self, stacks: Ints) -> Ints:
        """The label set of each of some stacks."""
        return self._stacks.rows.fixed[0][stacks]

    def label_sets(self, numbers: Ints) -> list[tuple[Label, ...]]:
        """Some label sets."""
        return self._label_sets.take(numbers)

    def locations(self, numbers: Ints) -> LocationRows:
        """Of some locations: all columns, but of the lines' columns only each location's last."""
        (mapping, address, folded, last_column), (function, line), offsets = self._locations.take(numbers)
        column = np.zeros(len(line), np.int64)
        has_lines = np.flatnonzero(np.diff(offsets))
        column[offsets[has_lines + 1] - 1] = last_column[has_lines]
        return LocationRows(mapping, address, folded != 0, Lines(function, line, column, offsets))

    @property
    def counts(self) -> Counts:
        """How much there is of each kind."""
        return Counts(
            strings=len(self.strings),
            mappings=len(self._mappings),
            functions=len(self._functions),
            locations=len(self._locations),
            stacks=len(self._stacks),
            label_sets=self._label_sets.counts,
        )

    def since(self, counts: Counts) -> Entries:
        """What has come since there was that much."""
        return Entries(
            self.strings.since(counts.strings),
            self._mappings.since(counts.mappings),
            self._functions.since(counts.functions),
            self._locations.since(counts.locations),
            self._stacks.since(counts.stacks),
            self._label_sets.since(counts.label_sets),
        )

    def grow(self, entries: Entries) -> None:
        """Takes in what came to another dictionary, which was as this one is."""
        self.strings.of(entries.strings)
        self._mappings.of(entries.mappings)
        self._functions.grow(entries.functions)
        self._locations.grow(entries.locations)
        self._stacks.grow(entries.stacks)
        self._label_sets.grow(entries.label_sets)

    def absorb(self, other: Dictionary, traces: Sequence[Traces]) -> list[Traces]:
        """Takes in what another dictionary has; returns the traces left there as if they were left here."""
        texts = self.strings.of(other.strings)
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
        stacks = self._stacks.intern(Rows([label_sets[label_set]], [locations[frames]], offsets))

        def translated(used: dict[int, Mapping]) -> dict[int, Mapping]:
            return {int(mappings[number]): mapping.translated(texts) for number, mapping in used.items()}

        return [
            replace(
                left,
                stacks=stacks.astype(np.int32)[left.stacks],
                main=translated(left.main),
                mappings=translated(left.mappings),
                inner_columns={
                    int(locations[number]): columns for number, columns in left.inner_columns.items()
                },
            )
            for left in traces
        ]

    def functions(self, numbers: Ints) -> Functions:
        """Of some functions: all columns."""
        return Functions(*self._functions.take(numbers).fixed)


def _inner_columns(batch: Batch, numbers: Int64s) -> list[InnerColumns]:
    """Of each profile of a batch, whose locations have these numbers. Few profilers write any."""
    lines = batch.locations.lines
    columns: list[InnerColumns] = [{} for _ in range(len(batch))]
    if not lines.column.any():
        return columns
    is_inner = lines.column != 0
    is_inner[lines.offsets[1:][np.diff(lines.offsets) > 0] - 1] = False
    rows = np.unique(rows_at(lines.offsets, np.flatnonzero(is_inner)))
    for row, profile in zip(rows.tolist(), rows_at(batch.location_offsets, rows).tolist(), strict=True):
        own = tuple(lines.column[lines.offsets[row] : lines.offsets[row + 1]].tolist())
        add_inner_columns(columns[profile], {int(numbers[row]): own})
    return columns
