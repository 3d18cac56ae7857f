"""The wire format of one message, read strictly and one field at a time: slow, and sure of its place.

`decode` reads many records at once and takes for granted how profilers lay them out. What is laid out
otherwise comes here, to be brought to that layout, or to be refused by the place and the name of its
fault. The rules are those of google/pprof's proto.go: unknown fields are skipped, groups and wrong wire
types refused, the last of a repeated scalar counts.
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

_NONE: Mapping[int, Any] = MappingProxyType({})

# Runs up to so many bytes are quicker read one by one than by NumPy.
_SHORT_RUN = 32


class WireType(IntEnum):
    """How a field's value is laid out."""

    VARINT = 0
    FIXED64 = 1
    LENGTH = 2
    FIXED32 = 5


class Message(NamedTuple):
    """Which fields of a message are numbers, repeated numbers (with the limit on how many), and messages;
    others are unknown.
    """

    scalars: tuple[int, ...]
    repeated: Mapping[int, str] = _NONE
    messages: Mapping[int, Message] = _NONE


VALUE_TYPE = Message((1, 2))
LABEL = Message((1, 2, 3, 4))
LINE = Message((1, 2, 3))
FUNCTION = Message((1, 2, 3, 4, 5))
MAPPING = Message((1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
LOCATION = Message((1, 2, 3, 5), messages={4: LINE})
SAMPLE = Message((), repeated={1: "stack_depth", 2: "sample_types"}, messages={3: LABEL})


def read_varint(body: bytes, position: int) -> tuple[int, int]:
    """The varint at `position`, and where the next byte is. Raises MalformedProfile."""
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
    """Reads messages one field at a time, `irregular_fields` of them at most.

    All methods raise MalformedProfile and LimitExceeded.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._fields = 0

    def fields(self, body: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Every field of a message: number, wire type, and value as it lies there, without its length."""
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
                    f"field {number} has wire type {kind}, which pprof lacks", f"byte {start}"
                )
            if end > len(body):
                raise MalformedProfile(f"field {number} is longer than what is left", f"byte {start}")
            yield number, kind, body[position:end]
            position = end

    def _count(self) -> None:
        self._fields += 1
        if self._fields > self.limits.irregular_fields:
            self.limits.check("irregular_fields", self._fields)

    def varints(self, run: bytes) -> Iterator[int]:
        """The numbers of a packed run, unsigned."""
        position = 0
        while position < len(run):
            self._count()
            value, position = read_varint(run, position)
            yield value

    def _run_length(self, run: bytes, limit: str) -> int:
        """How many numbers a packed run has, once it is sure that all are well-formed."""
        if len(run) <= _SHORT_RUN:
            count = position = 0
            while position < len(run):
                _, position = read_varint(run, position)
                count += 1
            return count
        # Counted before any is decoded, which takes eight times the room.
        count = int(np.count_nonzero(np.frombuffer(run, np.uint8) < 0x80))
        self.limits.check(limit, count)
        decode_varints(run)
        return count

    def regular(self, body: bytes, message: Message, where: str) -> bytes:
        """The message as profilers write it: known fields only, numbers before messages, repeats packed."""
        try:
            return self._regular(body, message)
        except MalformedProfile as error:
            raise MalformedProfile(error.what, f"{where}, {error.where}" if error.where else where) from None

    def _regular(self, body: bytes, message: Message) -> bytes:
        scalars: dict[int, bytes] = {}
        packed: dict[int, list[bytes]] = {}
        counts = dict.fromkeys(message.repeated, 0)
        messages: list[bytes] = []
        for number, kind, value in self.fields(body):
            if number in message.messages:
                _expect(kind, WireType.LENGTH, number)
                messages.append(length_field(number, self._regular(value, message.messages[number])))
                self.limits.check("nested_messages", len(messages))
            elif number in message.repeated:
                if kind == WireType.LENGTH:
                    counts[number] += self._run_length(value, message.repeated[number])
                else:
                    _expect(kind, WireType.VARINT, number)
                    counts[number] += 1
                self.limits.check(message.repeated[number], counts[number])
                packed.setdefault(number, []).append(value)
            elif number in message.scalars:
                _expect(kind, WireType.VARINT, number)
                scalars[number] = encode_varint(number << 3) + value
        runs = [length_field(number, b"".join(run)) for number, run in packed.items()]
        return b"".join([*scalars.values(), *runs, *messages])


def length_field(number: int, value: bytes) -> bytes:
    """A message, a string or a packed run as a field."""
    return encode_varint(number << 3 | WireType.LENGTH) + encode_varint(len(value)) + value


def _expect(kind: int, expected: WireType, number: int) -> None:
    if kind != expected:
        raise MalformedProfile(f"field {number} has wire type {kind}, not {expected}")
