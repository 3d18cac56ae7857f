"""A strict reader of the wire format: one message, one field at a time. Slow, but exact about errors.

`fields` reads many records at once and assumes the layout that profilers write. A record in another layout
comes here: the reader rewrites it in the usual layout, or raises an error that says what is wrong and where.
The rules are those of google/pprof's proto.go: unknown fields are skipped, groups and wrong wire types are
refused, and of a scalar field that is given several times the last value counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from pprof_merge.codec.varint import MAX_BYTES, decode_varints, encode_varint
from pprof_merge.errors import MalformedProfile
from pprof_merge.limits import Limits

_UINT64 = (1 << 64) - 1

_NO_FIELDS: Mapping[int, Any] = MappingProxyType({})

# Up to so many bytes of packed numbers are read faster one by one than by NumPy.
_SHORT_RUN = 32


class WireType(IntEnum):
    """How a field's value is encoded. pprof's schema has no groups."""

    VARINT = 0
    FIXED64 = 1
    LENGTH = 2
    FIXED32 = 5


class MessageSchema(NamedTuple):
    """The known fields of a message, by number: scalars, repeated scalars, and messages.

    `repeated` maps a field to the name of the limit on how many numbers it may have.
    """

    scalars: tuple[int, ...]
    repeated: Mapping[int, str] = _NO_FIELDS
    messages: Mapping[int, MessageSchema] = _NO_FIELDS


VALUE_TYPE = MessageSchema((1, 2))
LABEL = MessageSchema((1, 2, 3, 4))
LINE = MessageSchema((1, 2, 3))
FUNCTION = MessageSchema((1, 2, 3, 4, 5))
MAPPING = MessageSchema((1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
LOCATION = MessageSchema((1, 2, 3, 5), messages={4: LINE})
SAMPLE = MessageSchema((), repeated={1: "stack_depth", 2: "sample_types"}, messages={3: LABEL})


def read_varint(body: bytes, position: int) -> tuple[int, int]:
    """Return the varint at `position`, and the position after it. Raises MalformedProfile."""
    if position < len(body) and body[position] < 0x80:
        return body[position], position + 1
    value = 0
    for k in range(MAX_BYTES):
        if position + k >= len(body):
            raise MalformedProfile("a varint is truncated", f"byte {position}")
        byte = body[position + k]
        value |= (byte & 0x7F) << (7 * k)
        if byte < 0x80:
            return value & _UINT64, position + k + 1
    raise MalformedProfile(f"a varint is longer than {MAX_BYTES} bytes", f"byte {position}")


class StrictReader:
    """A reader of messages, one field at a time; it reads at most `limits.irregular_fields` fields in all.

    All methods raise MalformedProfile and LimitExceeded.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._fields = 0

    def fields(self, body: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Yield every field of a message: its number, its wire type, and its encoded value without length."""
        position = 0
        while position < len(body):
            self._count()
            start = position
            tag, position = read_varint(body, position)
            number, kind = tag >> 3, tag & 7
            if kind == WireType.VARINT:
                _, end = read_varint(body, position)
            elif kind == WireType.FIXED64:
                end = position + 8
            elif kind == WireType.FIXED32:
                end = position + 4
            elif kind == WireType.LENGTH:
                size, position = read_varint(body, position)
                end = position + size
            else:
                raise MalformedProfile(
                    f"field {number} has wire type {kind}, which pprof does not use", f"byte {start}"
                )
            if end > len(body):
                raise MalformedProfile(
                    f"field {number} is longer than the bytes that are left", f"byte {start}"
                )
            yield number, kind, body[position:end]
            position = end

    def _count(self) -> None:
        self._fields += 1
        if self._fields > self.limits.irregular_fields:
            self.limits.check("irregular_fields", self._fields)

    def varints(self, run: bytes) -> Iterator[int]:
        """Yield the numbers of a packed field, unsigned."""
        position = 0
        while position < len(run):
            self._count()
            value, position = read_varint(run, position)
            yield value

    def _packed_count(self, run: bytes, limit: str) -> int:
        """Return how many numbers a packed field has, after checking that all are well-formed."""
        if len(run) <= _SHORT_RUN:
            count = position = 0
            while position < len(run):
                _, position = read_varint(run, position)
                count += 1
            return count
        # Check the count before decoding, which takes eight times the memory.
        count = int(np.count_nonzero(np.frombuffer(run, np.uint8) < 0x80))
        self.limits.check(limit, count)
        decode_varints(run)
        return count

    def normalize(self, body: bytes, schema: MessageSchema, where: str) -> bytes:
        """Return the message in the layout that profilers write.

        It has known fields only, scalars before messages, and repeated scalars packed. `where` names the
        message in errors.
        """
        try:
            return self._normalize(body, schema)
        except MalformedProfile as error:
            raise MalformedProfile(error.what, f"{where}, {error.where}" if error.where else where) from None

    def _normalize(self, body: bytes, schema: MessageSchema) -> bytes:
        scalars: dict[int, bytes] = {}
        packed: dict[int, list[bytes]] = {}
        counts = dict.fromkeys(schema.repeated, 0)
        messages: list[bytes] = []
        for number, kind, value in self.fields(body):
            if number in schema.messages:
                _expect(kind, WireType.LENGTH, number)
                messages.append(length_field(number, self._normalize(value, schema.messages[number])))
                self.limits.check("nested_messages", len(messages))
            elif number in schema.repeated:
                if kind == WireType.LENGTH:
                    counts[number] += self._packed_count(value, schema.repeated[number])
                else:
                    _expect(kind, WireType.VARINT, number)
                    counts[number] += 1
                self.limits.check(schema.repeated[number], counts[number])
                packed.setdefault(number, []).append(value)
            elif number in schema.scalars:
                _expect(kind, WireType.VARINT, number)
                scalars[number] = encode_varint(number << 3) + value
        runs = [length_field(number, b"".join(run)) for number, run in packed.items()]
        return b"".join([*scalars.values(), *runs, *messages])


def length_field(number: int, value: bytes) -> bytes:
    """Return a field with a length: a message, a string or packed numbers."""
    return encode_varint(number << 3 | WireType.LENGTH) + encode_varint(len(value)) + value


def _expect(kind: int, expected: WireType, number: int) -> None:
    if kind != expected:
        raise MalformedProfile(f"field {number} has wire type {kind}, expected {expected}")
