"""Splitting a profile into its records, still encoded: the first step of `decode` after gzip.

protobuf's C parser splits the profile, in about 12 ns a record. What it refuses, and the fields that
records.proto leaves out, are read by the rules of `strict_reader`, which says at which byte a profile is
broken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from pprof_proto.records_pb2 import Records as WireRecords

from pprof_merge.codec.strict_reader import StrictReader, WireType, read_varint
from pprof_merge.columns.ragged import offsets_of
from pprof_merge.errors import MalformedProfile
from pprof_merge.limits import Limits
from pprof_merge.profile import Int64s


class Field(IntEnum):
    """The fields of the message Profile, by number."""

    SAMPLE_TYPE = 1
    SAMPLE = 2
    MAPPING = 3
    LOCATION = 4
    FUNCTION = 5
    STRING_TABLE = 6
    DROP_FRAMES = 7
    KEEP_FRAMES = 8
    TIME_NANOS = 9
    DURATION_NANOS = 10
    PERIOD_TYPE = 11
    PERIOD = 12
    COMMENT = 13
    DEFAULT_SAMPLE_TYPE = 14
    DOC_URL = 15


# The fields that records.proto has: messages and strings. All others are numbers.
_RECORD_FIELDS = (*range(Field.SAMPLE_TYPE, Field.DROP_FRAMES), Field.PERIOD_TYPE)

_LIMIT_OF_FIELD = {
    Field.SAMPLE_TYPE: "sample_types",
    Field.SAMPLE: "samples",
    Field.MAPPING: "mappings",
    Field.LOCATION: "locations",
    Field.FUNCTION: "functions",
    Field.STRING_TABLE: "strings",
}
# Computed once: enums are slow, and these are used for every profile.
_LIMIT_OF_ATTRIBUTE = {number.name.lower(): name for number, name in _LIMIT_OF_FIELD.items()}
_ATTRIBUTES = {int(number): number.name.lower() for number in Field}
_WIRE_TYPES = frozenset(map(int, WireType))

# The most bytes that a record's tag and length take, and that a scalar field takes.
_MAX_HEAD_BYTES, _MAX_SCALAR_BYTES = 6, 11


class EncodedRecords(NamedTuple):
    """The records of one table, still encoded: their bytes, one record after another, and their sizes (n,).

    One bytes object takes less memory and time than a small object for each record.
    """

    joined: bytes
    sizes: Int64s

    @classmethod
    def of(cls, bodies: list[bytes]) -> EncodedRecords:
        """Return the given records as one table."""
        return cls(b"".join(bodies), np.fromiter(map(len, bodies), np.int64, len(bodies)))

    @classmethod
    def of_all(cls, tables: Sequence[EncodedRecords]) -> EncodedRecords:
        """Return the records of several tables as one table, in order."""
        if len(tables) == 1:
            return tables[0]
        return cls(
            b"".join([table.joined for table in tables]), np.concatenate([table.sizes for table in tables])
        )

    def __len__(self) -> int:
        return len(self.sizes)

    def each(self) -> Iterator[bytes]:
        """Yield the bytes of one record after another."""
        return (self.joined[begin:end] for begin, end in pairwise(offsets_of(self.sizes).tolist()))


@dataclass(slots=True)
class Records:
    """The records of one profile, and its scalar fields. Strings are indexes into the string table."""

    samples: EncodedRecords
    mappings: EncodedRecords
    locations: EncodedRecords
    functions: EncodedRecords
    sample_types: list[bytes]
    strings: list[bytes]
    period_type: bytes = b""
    drop_frames: int = 0
    keep_frames: int = 0
    time_nanos: int = 0
    duration_nanos: int = 0
    period: int = 0
    comments: list[int] = field(default_factory=list)
    default_sample_type: int = 0
    doc_url: int = 0


def split(protobuf: bytes, reader: StrictReader) -> Records:
    """Split a bare protobuf into its records, whose counts are checked before they are copied.

    Raises LimitExceeded, and MalformedProfile with the byte at which the profile is broken.
    """
    try:
        message = WireRecords.FromString(protobuf)
    except DecodeError:
        return _split_strictly(protobuf, reader)
    limits = reader.limits
    for attribute, name in _LIMIT_OF_ATTRIBUTE.items():
        limits.check(name, len(getattr(message, attribute)))
    records = Records(
        samples=EncodedRecords.of(message.sample[:]),
        mappings=EncodedRecords.of(message.mapping[:]),
        locations=EncodedRecords.of(message.location[:]),
        functions=EncodedRecords.of(message.function[:]),
        sample_types=message.sample_type[:],
        strings=message.string_table[:],
        period_type=message.period_type,
    )
    _check_names(records.strings, limits)
    # The set takes about 300 bytes a field, so check first that there can't be too many fields.
    if len(protobuf) // _MAX_SCALAR_BYTES > limits.irregular_fields:
        limits.check("irregular_fields", _scalar_bytes(protobuf, records) // _MAX_SCALAR_BYTES)
    unknown_fields = UnknownFieldSet(message)
    limits.check("irregular_fields", len(unknown_fields))
    for unknown in unknown_fields:  # type: ignore[attr-defined]  # its stub lacks __iter__
        _set_scalar(records, unknown.field_number, unknown.wire_type, unknown.data, reader)
    return records


def _check_names(strings: list[bytes], limits: Limits) -> None:
    """Raise LimitExceeded if a string is longer than `limits.name_bytes`."""
    longest = max(map(len, strings), default=0)
    if longest > limits.name_bytes:
        limits.check(
            "name_bytes",
            longest,
            f"string {next(row for row, string in enumerate(strings) if len(string) == longest)}",
        )


def _scalar_bytes(protobuf: bytes, records: Records) -> int:
    """Return a lower bound on how many bytes of the protobuf are outside the tables and the strings."""
    tables = (records.samples, records.mappings, records.locations, records.functions)
    in_tables = sum(len(table.joined) + _MAX_HEAD_BYTES * len(table) for table in tables)
    in_strings = sum(map(len, records.strings)) + _MAX_HEAD_BYTES * len(records.strings)
    return len(protobuf) - in_tables - in_strings


def _split_strictly(protobuf: bytes, reader: StrictReader) -> Records:
    """Return what `split` returns, for a protobuf that protobuf's own parser refuses."""
    bulk: dict[int, list[bytes]] = {number: [] for number in _RECORD_FIELDS}
    others: list[tuple[int, int, bytes]] = []
    for number, kind, value in reader.fields(protobuf):
        if number in bulk and kind == WireType.LENGTH:
            bulk[number].append(value)
        else:
            others.append((number, kind, value))
    for number, name in _LIMIT_OF_FIELD.items():
        reader.limits.check(name, len(bulk[number]))
    records = Records(
        samples=EncodedRecords.of(bulk[Field.SAMPLE]),
        mappings=EncodedRecords.of(bulk[Field.MAPPING]),
        locations=EncodedRecords.of(bulk[Field.LOCATION]),
        functions=EncodedRecords.of(bulk[Field.FUNCTION]),
        sample_types=bulk[Field.SAMPLE_TYPE],
        strings=bulk[Field.STRING_TABLE],
        period_type=(bulk[Field.PERIOD_TYPE] or [b""])[-1],
    )
    _check_names(records.strings, reader.limits)
    for number, kind, value in others:
        scalar = read_varint(value, 0)[0] if kind == WireType.VARINT else value
        _set_scalar(records, number, kind, scalar, reader)
    return records


def _set_scalar(records: Records, number: int, kind: int, value: object, reader: StrictReader) -> None:
    """Set the scalar field `number` of the profile; skip it if it is unknown. Raises MalformedProfile."""
    if kind not in _WIRE_TYPES:
        raise MalformedProfile(f"field {number} has wire type {kind}, which pprof does not use")
    if number == Field.COMMENT and kind == WireType.LENGTH and isinstance(value, bytes):
        records.comments.extend(_signed(index) for index in reader.varints(value))
    elif number in _ATTRIBUTES:
        if kind != WireType.VARINT or number in _RECORD_FIELDS or not isinstance(value, int):
            expected = WireType.LENGTH if number in _RECORD_FIELDS else WireType.VARINT
            raise MalformedProfile(f"field {number} has wire type {kind}, expected {expected}")
        if number == Field.COMMENT:
            records.comments.append(_signed(value))
            return
        if number == Field.TIME_NANOS and records.time_nanos:
            raise MalformedProfile("the input is two profiles, one after the other; send each by itself")
        setattr(records, _ATTRIBUTES[number], _signed(value))


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
