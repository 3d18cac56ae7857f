"""`Profile` → bare protobuf, byte for byte as google/pprof's `Profile.WriteUncompressed` writes it.

Ids are row numbers from 1, zero fields are left out, and the string table is in the order in which that
code comes across the strings; strings that nothing refers to are not written.
"""

from __future__ import annotations

import numpy as np

from pprof_merge.numbering import Numbers
from pprof_merge.profile import (
    Functions,
    Header,
    Int64s,
    Labels,
    Locations,
    Mappings,
    Profile,
    Samples,
    UInt64s,
    ValueType,
)
from pprof_merge.ragged import first_appearance
from pprof_merge.tokens import (
    LONGEST_UNPACKED,
    Tokens,
    joined,
    message_field,
    number_field,
    repeated_field,
    rows_of,
    scalar_message,
)
from pprof_merge.varint import encode_varint
from pprof_merge.wire import WireType, length_field


def encode(profile: Profile) -> bytes:
    """The profile's protobuf; the same profile always gives the same bytes."""
    table = _StringTable(profile)
    text = table.text
    head, tail = _header_fields(profile.header, table)
    return b"".join(
        (
            *head,
            _samples(profile.samples, text).encode(),
            _mappings(profile.mappings, text).encode(),
            _locations(profile.locations).encode(),
            _functions(profile.functions, text).encode(),
            *(length_field(6, string) for string in table.strings),
            *tail,
        )
    )


class _StringTable:
    """The strings to be written; `text` has the new index of each of the profile's strings."""

    def __init__(self, profile: Profile) -> None:
        numbers: Numbers[bytes] = Numbers([b""])
        known = numbers.of(profile.strings)
        before, after = (numbers.of(texts) for texts in _header_texts(profile.header))
        used = (before, known[_label_texts(profile.samples.labels)], known[_table_texts(profile)], after)
        order, renumbered = first_appearance(np.concatenate(used))
        keys = list(numbers)
        self.strings = [keys[number] for number in order.tolist()]
        self._index: dict[bytes, int] = dict(zip(self.strings, range(len(self.strings)), strict=True))
        # A string that is not used has no index, and nobody asks for it.
        self.text = np.append(renumbered, np.full(len(numbers) - len(renumbered), -1))[known]

    def __getitem__(self, text: bytes) -> int:
        return self._index[text]


def _header_texts(header: Header) -> tuple[list[bytes], list[bytes]]:
    """The header's strings: those that come before all others, and those that come last."""
    before = [b"", *(text for sample_type in header.sample_types for text in sample_type)]
    after = [header.drop_frames, header.keep_frames, *header.period_type, *header.comments]
    return before, [*after, header.default_sample_type, header.doc_url]


def _label_texts(labels: Labels) -> Int64s:
    return np.stack((labels.key, np.where(labels.text < 0, labels.unit, labels.text)), axis=1).ravel()


def _table_texts(profile: Profile) -> Int64s:
    mappings, functions = profile.mappings, profile.functions
    files = np.stack((mappings.filename, mappings.build_id), axis=1)
    names = np.stack((functions.name, functions.system_name, functions.filename), axis=1)
    return np.concatenate((files.ravel(), names.ravel()))


def _samples(samples: Samples, text: Int64s) -> Tokens:
    labels = samples.labels
    label = scalar_message(
        (text[labels.key], np.where(labels.text < 0, 0, text[labels.text]), labels.number, text[labels.unit])
    )
    n_types = samples.values.shape[1]
    each_value = rows_of(samples.values.view(np.uint64).ravel())
    body = joined(
        repeated_field(1, rows_of(_ids(samples.locations)).grouped(samples.location_offsets)),
        repeated_field(2, each_value.grouped(np.arange(len(samples) + 1) * n_types)),
        message_field(3, label).grouped(labels.offsets),
    )
    return message_field(2, body)


def _mappings(mappings: Mappings, text: Int64s) -> Tokens:
    flags = mappings.flags.astype(np.int64)
    columns = (
        _ids(np.arange(len(mappings))),
        mappings.start,
        mappings.limit,
        mappings.offset,
        text[mappings.filename],
        text[mappings.build_id],
        *flags.T,
    )
    return message_field(3, scalar_message(columns))


def _locations(locations: Locations) -> Tokens:
    lines = locations.lines
    line = scalar_message((_ids(lines.function), lines.line, lines.column))
    body = joined(
        number_field(1, _ids(np.arange(len(locations)))),
        number_field(2, _ids(locations.mapping)),
        number_field(3, locations.address),
        message_field(4, line).grouped(lines.offsets),
        number_field(5, locations.folded.astype(np.int64)),
    )
    return message_field(4, body)


def _functions(functions: Functions, text: Int64s) -> Tokens:
    columns = (
        _ids(np.arange(len(functions))),
        text[functions.name],
        text[functions.system_name],
        text[functions.filename],
        functions.start_line,
    )
    return message_field(5, scalar_message(columns))


def _ids(rows: Int64s) -> UInt64s:
    """The wire format's ids, from 1; 0 for row -1, which is none."""
    return (rows + 1).view(np.uint64)


def _header_fields(header: Header, table: _StringTable) -> tuple[list[bytes], list[bytes]]:
    """The header's fields: those that come before all tables, and those that come after."""

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
