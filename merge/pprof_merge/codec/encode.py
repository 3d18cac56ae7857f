"""Encoding: `Profile` → bare protobuf, byte for byte as google/pprof's `Profile.WriteUncompressed` writes it.

Ids are row numbers counted from 1, and fields that are 0 are left out. The string table has the strings in
the order in which google/pprof first uses them, without those that nothing refers to.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from pprof_merge.codec.encode_samples import LONGEST_UNPACKED, encode_samples
from pprof_merge.codec.message_rows import MessageRows, message_sizes, scalar_messages, scalar_sizes, unsigned
from pprof_merge.codec.strict_reader import WireType, length_field
from pprof_merge.codec.varint import encode_varint
from pprof_merge.columns.ragged import first_appearance, offsets_of
from pprof_merge.profile import (
    Functions,
    Header,
    Int64s,
    Labels,
    Locations,
    Mappings,
    Profile,
    UInt64s,
    ValueType,
)

Column = TypeVar("Column", Int64s, UInt64s)

_STRING = 6 << 3 | WireType.LENGTH
# Strings shorter than this have a tag and a length of one byte each, which are made only once.
_SHORT = 128


def encode(profile: Profile) -> bytes:
    """Return the profile as bare protobuf. The same profile always gives the same bytes."""
    table = _StringTable(profile)
    head, tail = _header_fields(profile.header, table)
    locations = _locations(profile.locations)  # first, since it needs the most temporary memory
    return b"".join(
        (
            *head,
            *encode_samples(profile.samples, table.indexes),
            _mappings(profile.mappings, table.indexes),
            locations,
            _functions(profile.functions, table.indexes),
            *_strings(table.strings),
            *tail,
        )
    )


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


def _mappings(mappings: Mappings, string_indexes: Int64s) -> bytes:
    columns = (
        _ids(np.arange(len(mappings))),
        mappings.start,
        mappings.limit,
        mappings.offset,
        unsigned(string_indexes[mappings.filename]),
        unsigned(string_indexes[mappings.build_id]),
        *mappings.flags.astype(np.uint64).T,
    )
    return scalar_messages(3, columns).encode()


def _locations(locations: Locations) -> bytes:
    """Return the location records. They are written with a row for each line, or one if there is no line.

    A location's own fields are in its first row, but `is_folded`, which comes last, is in its last row.
    """
    lines = locations.lines
    n_lines = np.diff(lines.offsets)
    n_rows = np.maximum(n_lines, 1)
    has_line = np.repeat(n_lines > 0, n_rows)
    first = offsets_of(n_rows)
    is_first, is_last = np.zeros((2, len(has_line)), np.bool_)
    is_first[first[:-1]] = True
    is_last[first[1:] - 1] = True

    def of_lines(values: Int64s | UInt64s) -> UInt64s:
        spread = np.zeros(len(has_line), np.uint64)
        spread[has_line] = unsigned(values)
        return spread

    def of_locations(values: Column) -> Column:
        return np.repeat(values, n_rows)

    line = [of_lines(_ids(lines.function)), of_lines(lines.line), of_lines(lines.column)]
    line_sizes = scalar_sizes(line)
    own = [_ids(np.arange(len(locations))), _ids(locations.mapping), locations.address]
    folded = locations.folded.astype(np.uint64)
    sizes = scalar_sizes([*own, folded])
    with_lines = offsets_of(np.where(has_line, message_sizes(line_sizes), 0))[first]
    sizes += with_lines[1:] - with_lines[:-1]
    rows = MessageRows(len(has_line))
    rows.message(4, of_locations(sizes), is_first)
    for number, values in enumerate(map(of_locations, own), 1):
        rows.number(number, values, is_first & (values != 0))
    rows.message(4, line_sizes, has_line)
    for number, values in enumerate(line, 1):
        rows.number(number, values, values != 0)
    rows.number(5, of_locations(folded), is_last & (of_locations(folded) != 0))
    return rows.encode()


def _functions(functions: Functions, string_indexes: Int64s) -> bytes:
    columns = (
        _ids(np.arange(len(functions))),
        unsigned(string_indexes[functions.name]),
        unsigned(string_indexes[functions.system_name]),
        unsigned(string_indexes[functions.filename]),
        unsigned(functions.start_line),
    )
    return scalar_messages(5, columns).encode()


def _ids(rows: Int64s) -> UInt64s:
    """Return the ids of rows, which count from 1. Row -1, which means none, has the id 0."""
    return unsigned(rows + 1)


def _strings(strings: list[bytes]) -> list[bytes]:
    heads = [bytes((_STRING, size)) for size in range(_SHORT)]
    return [
        heads[len(string)] + string if len(string) < _SHORT else length_field(6, string) for string in strings
    ]


def _header_fields(header: Header, table: _StringTable) -> tuple[list[bytes], list[bytes]]:
    """Return the header's fields: those that come before all tables, and those that come after."""

    def value_type(value: ValueType) -> bytes:
        return _number(1, table[value.type]) + _number(2, table[value.unit])

    period_type = value_type(header.period_type)
    comments = [encode_varint(table[comment]) for comment in header.comments]
    return [length_field(1, value_type(sample_type)) for sample_type in header.sample_types], [
        _number(7, table[header.drop_frames]),
        _number(8, table[header.keep_frames]),
        _number(9, header.time_nanos),
        _number(10, header.duration_nanos),
        length_field(11, period_type) if period_type else b"",
        _number(12, header.period),
        length_field(13, b"".join(comments))
        if len(comments) > LONGEST_UNPACKED
        else b"".join(_tag(13, WireType.VARINT) + comment for comment in comments),
        _tag(14, WireType.VARINT) + encode_varint(table[header.default_sample_type]),
        _number(15, table[header.doc_url]),
    ]


def _tag(number: int, wire_type: WireType) -> bytes:
    return encode_varint(number << 3 | wire_type)


def _number(number: int, value: int) -> bytes:
    return _tag(number, WireType.VARINT) + encode_varint(value) if value else b""
