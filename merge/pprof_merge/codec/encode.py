"""Encoding: `Profile` → bare protobuf, byte for byte as google/pprof's `Profile.WriteUncompressed` writes it.

Ids are row numbers counted from 1, and fields that are 0 are left out. The string table has the strings in
the order in which google/pprof first uses them, without those that nothing refers to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pprof_merge.codec.writer import Writer
from pprof_merge.columns.ragged import first_appearance
from pprof_merge.profile import (
    Functions,
    Header,
    Int64s,
    Labels,
    Locations,
    Mappings,
    Profile,
    Samples,
    ValueType,
)

# How many locations of samples are written at once, which bounds the memory besides the result.
_CHUNK_LOCATIONS = 1 << 16
_NO_TYPE = ValueType(b"", b"")


def encode(profile: Profile) -> bytes:
    """Return the profile as bare protobuf. The same profile always gives the same bytes."""
    table, header, writer = _StringTable(profile), profile.header, Writer()
    for sample_type in header.sample_types:
        _value_type(writer, 1, sample_type, table)
    _samples(writer, profile.samples, table.indexes)
    writer.messages(3, _mappings(profile.mappings, table.indexes), 10)
    _locations(writer, profile.locations)
    writer.messages(5, _functions(profile.functions, table.indexes), 5)
    writer.strings(table.strings)
    writer.number(7, table[header.drop_frames])
    writer.number(8, table[header.keep_frames])
    writer.number(9, header.time_nanos)
    writer.number(10, header.duration_nanos)
    if header.period_type != _NO_TYPE:
        _value_type(writer, 11, header.period_type, table)
    writer.number(12, header.period)
    writer.repeated(13, _bytes([table[comment] for comment in header.comments]))
    writer.always(14, table[header.default_sample_type])
    writer.number(15, table[header.doc_url])
    return writer.written()


class _StringTable:
    """The string table to write: `strings`, and `indexes`, which has each profile string's index in them.

    `table[string]` is the index of a string of the header.
    """

    def __init__(self, profile: Profile) -> None:
        strings = list(profile.strings)
        self._row_of = dict(zip(strings, range(len(strings)), strict=True))  # the last row of equal strings
        before, after = _header_strings(profile.header)
        for string in (*before, *after):
            if string not in self._row_of:
                self._row_of[string] = len(strings)
                strings.append(string)
        rows = np.fromiter(map(self._row_of.__getitem__, strings), np.int64, len(strings))
        used = (
            self._rows(before),
            rows[_label_strings(profile.samples.labels)],
            rows[_table_strings(profile)],
            self._rows(after),
        )
        order, index = first_appearance(np.concatenate(used))
        self.strings = [strings[row] for row in order.tolist()]
        # Unused strings have the index -1, which nothing reads.
        self.indexes = np.append(index, np.full(len(strings) - len(index), -1))[rows]

    def _rows(self, strings: list[bytes]) -> Int64s:
        return np.array([self._row_of[string] for string in strings], np.int64)

    def __getitem__(self, string: bytes) -> int:
        return int(self.indexes[self._row_of[string]])


def _header_strings(header: Header) -> tuple[list[bytes], list[bytes]]:
    """Return the header's strings: those that come before all others, and those that come after."""
    before = [b"", *(string for sample_type in header.sample_types for string in sample_type)]
    after = [header.drop_frames, header.keep_frames, *header.period_type, *header.comments]
    return before, [*after, header.default_sample_type, header.doc_url]


def _label_strings(labels: Labels) -> Int64s:
    """Return the strings of all labels: each label's key, then its text or unit."""
    return np.stack((labels.key, np.where(labels.text < 0, labels.unit, labels.text)), axis=1).ravel()


def _table_strings(profile: Profile) -> Int64s:
    """Return the strings of all mappings, then of all functions, each in the order of its fields."""
    mappings, functions = profile.mappings, profile.functions
    files = np.stack((mappings.filename, mappings.build_id), axis=1)
    names = np.stack((functions.name, functions.system_name, functions.filename), axis=1)
    return np.concatenate((files.ravel(), names.ravel()))


def _bytes(cells: Any) -> bytes:
    """Return numbers as bytes of int64."""
    array: Int64s = np.asarray(cells, np.int64)
    return array.tobytes()


def _columns(*columns: Any) -> bytes:
    """Return columns (n,) as bytes of int64 (n, k); uint64 are taken as they are."""
    cells = np.empty((len(columns[0]), len(columns)), np.int64)
    for i, column in enumerate(columns):
        cells[:, i] = column.view(np.int64) if column.dtype == np.uint64 else column
    return cells.tobytes()


def _value_type(writer: Writer, number: int, value: ValueType, table: _StringTable) -> None:
    writer.messages(number, _bytes([table[value.type], table[value.unit]]), 2)


def _samples(writer: Writer, samples: Samples, string_indexes: Int64s) -> None:
    """Write samples in pieces, which bounds the memory besides the result."""
    labels, ends, label_ends = samples.labels, samples.location_offsets, samples.labels.offsets
    begin = 0
    while begin < len(samples):
        end = int(np.searchsorted(ends, ends[begin] + _CHUNK_LOCATIONS, side="right")) - 1
        end = min(max(end, begin + 1), len(samples), begin + _CHUNK_LOCATIONS)
        frames, chosen = slice(ends[begin], ends[end]), slice(label_ends[begin], label_ends[end])
        is_text = labels.text[chosen] >= 0
        writer.samples(
            _bytes(samples.values[begin:end]),
            samples.values.shape[1],
            _bytes(samples.locations[frames].astype(np.int64) + 1),
            _bytes(ends[begin : end + 1] - ends[begin]),
            _columns(
                string_indexes[labels.key[chosen]],
                np.where(is_text, string_indexes[labels.text[chosen]], 0),
                labels.number[chosen],
                np.where(is_text, 0, string_indexes[labels.unit[chosen]]),
            ),
            _bytes(label_ends[begin : end + 1] - label_ends[begin]),
        )
        begin = end


def _mappings(mappings: Mappings, string_indexes: Int64s) -> bytes:
    return _columns(
        np.arange(1, len(mappings) + 1),
        mappings.start,
        mappings.limit,
        mappings.offset,
        string_indexes[mappings.filename],
        string_indexes[mappings.build_id],
        *mappings.flags.T,
    )


def _locations(writer: Writer, locations: Locations) -> None:
    lines = locations.lines
    writer.locations(
        _columns(
            np.arange(1, len(locations) + 1), locations.mapping + 1, locations.address, locations.folded
        ),
        _columns(lines.function + 1, lines.line, lines.column),
        _bytes(lines.offsets),
    )


def _functions(functions: Functions, string_indexes: Int64s) -> bytes:
    return _columns(
        np.arange(1, len(functions) + 1),
        string_indexes[functions.name],
        string_indexes[functions.system_name],
        string_indexes[functions.filename],
        functions.start_line,
    )
