"""A profile's top level, split into the bytes of its records: the first step of `decode`.

protobuf's C parser does the splitting, some 12 ns a record; what it refuses or doesn't know is read by
the strict rules of `wire`, which also say at which byte a profile is broken.
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
    """The fields of a profile."""

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


_BULK = (*range(Field.SAMPLE_TYPE, Field.DROP_FRAMES), Field.PERIOD_TYPE)

_LIMITED = {
    Field.SAMPLE_TYPE: "sample_types",
    Field.SAMPLE: "samples",
    Field.MAPPING: "mappings",
    Field.LOCATION: "locations",
    Field.FUNCTION: "functions",
    Field.STRING_TABLE: "strings",
}
# Made once, since enums are slow and these are looked at for every profile.
_LIMIT_OF_ATTRIBUTE = {number.name.lower(): name for number, name in _LIMITED.items()}
_ATTRIBUTES = {int(number): number.name.lower() for number in Field}
_WIRE_TYPES = frozenset(map(int, WireType))

# A record's tag and length take 6 bytes at most; a scalar field takes 11 at most.
_FRAME_BYTES, _FIELD_BYTES = 6, 11


class Bodies(NamedTuple):
    """The records of a table, still encoded: their bytes one after another, and how many each has.

    So many small objects take more room and time than what is in them, and are let go of at once.
    """

    joined: bytes
    sizes: Int64s

    @classmethod
    def of(cls, bodies: list[bytes]) -> Bodies:
        """Joins and measures them."""
        return cls(b"".join(bodies), np.fromiter(map(len, bodies), np.int64, len(bodies)))

    @classmethod
    def of_all(cls, tables: Sequence[Bodies]) -> Bodies:
        """One table after another."""
        if len(tables) == 1:
            return tables[0]
        return cls(
            b"".join([table.joined for table in tables]), np.concatenate([table.sizes for table in tables])
        )

    def __len__(self) -> int:
        return len(self.sizes)

    def each(self) -> Iterator[bytes]:
        """One record after another."""
        return (self.joined[begin:end] for begin, end in pairwise(offsets_of(self.sizes).tolist()))


@dataclass(slots=True)
class Records:
    """The records of one profile and its numbers. Texts are string table indexes."""

    samples: Bodies
    mappings: Bodies
    locations: Bodies
    functions: Bodies
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
    """Splits a bare protobuf; the counts are checked before the records are made.

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
        samples=Bodies.of(message.sample[:]),
        mappings=Bodies.of(message.mapping[:]),
        locations=Bodies.of(message.location[:]),
        functions=Bodies.of(message.function[:]),
        sample_types=message.sample_type[:],
        strings=message.string_table[:],
        period_type=message.period_type,
    )
    _check_names(records.strings, limits)
    # The set costs some 300 bytes a field, so a mountain of them is refused by its size before.
    if len(protobuf) // _FIELD_BYTES > limits.irregular_fields:
        limits.check("irregular_fields", _other_bytes(protobuf, records) // _FIELD_BYTES)
    unknown_fields = UnknownFieldSet(message)
    limits.check("irregular_fields", len(unknown_fields))
    for unknown in unknown_fields:  # type: ignore[attr-defined]  # its stub lacks __iter__
        _take(records, unknown.field_number, unknown.wire_type, unknown.data, reader)
    return records


def _check_names(strings: list[bytes], limits: Limits) -> None:
    """Raises LimitExceeded where a string is longer than a name may be."""
    longest = max(map(len, strings), default=0)
    if longest > limits.name_bytes:
        limits.check(
            "name_bytes",
            longest,
            f"string {next(row for row, string in enumerate(strings) if len(string) == longest)}",
        )


def _other_bytes(protobuf: bytes, records: Records) -> int:
    """At least how many bytes of the protobuf are in none of the records, their tags or lengths."""
    tables = (records.samples, records.mappings, records.locations, records.functions)
    in_tables = sum(len(table.joined) + _FRAME_BYTES * len(table) for table in tables)
    in_strings = sum(map(len, records.strings)) + _FRAME_BYTES * len(records.strings)
    return len(protobuf) - in_tables - in_strings


def _split_strictly(protobuf: bytes, reader: StrictReader) -> Records:
    bulk: dict[int, list[bytes]] = {number: [] for number in _BULK}
    others: list[tuple[int, int, bytes]] = []
    for number, kind, value in reader.fields(protobuf):
        if number in bulk and kind == WireType.LENGTH:
            bulk[number].append(value)
        else:
            others.append((number, kind, value))
    for number, name in _LIMITED.items():
        reader.limits.check(name, len(bulk[number]))
    records = Records(
        samples=Bodies.of(bulk[Field.SAMPLE]),
        mappings=Bodies.of(bulk[Field.MAPPING]),
        locations=Bodies.of(bulk[Field.LOCATION]),
        functions=Bodies.of(bulk[Field.FUNCTION]),
        sample_types=bulk[Field.SAMPLE_TYPE],
        strings=bulk[Field.STRING_TABLE],
        period_type=(bulk[Field.PERIOD_TYPE] or [b""])[-1],
    )
    _check_names(records.strings, reader.limits)
    for number, kind, value in others:
        _take(records, number, kind, read_varint(value, 0)[0] if kind == WireType.VARINT else value, reader)
    return records


def _take(records: Records, number: int, kind: int, value: object, reader: StrictReader) -> None:
    """Takes a field that is not one of the bulky ones, or refuses it."""
    if kind not in _WIRE_TYPES:
        raise MalformedProfile(f"field {number} has wire type {kind}, which pprof lacks")
    if number == Field.COMMENT and kind == WireType.LENGTH and isinstance(value, bytes):
        records.comments.extend(_signed(index) for index in reader.varints(value))
    elif number in _ATTRIBUTES:
        if kind != WireType.VARINT or number in _BULK or not isinstance(value, int):
            raise MalformedProfile(f"field {number} has wire type {kind}")
        if number == Field.COMMENT:
            records.comments.append(_signed(value))
            return
        if number == Field.TIME_NANOS and records.time_nanos:
            raise MalformedProfile("two profiles were written one after the other")
        setattr(records, _ATTRIBUTES[number], _signed(value))


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
