"""The wire format of one message, read strictly and one field at a time: slow, and sure of its place.

`decode` reads many records at once and takes for granted how profilers lay them out. What is laid out
otherwise comes here, to be brought to that layout (`regular`), or to be refused by the place and the
name of its fault. The rules are those of google/pprof's proto.go: unknown fields are skipped, groups
and wrong wire types refused, the last of a repeated scalar counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from pprof_merge.errors import MalformedProfile
from pprof_merge.varint import MAX_BYTES, encode_varint

_UINT64 = (1 << 64) - 1


class WireType(IntEnum):
    """How a field's value is laid out."""

    VARINT = 0
    FIXED64 = 1
    LENGTH = 2
    FIXED32 = 5


@dataclass(frozen=True, slots=True)
class Message:
    """Which fields of a message are numbers, repeated numbers, and messages; others are unknown."""

    scalars: tuple[int, ...]
    repeated: tuple[int, ...] = ()
    messages: dict[int, Message] = field(default_factory=dict)


VALUE_TYPE = Message((1, 2))
LABEL = Message((1, 2, 3, 4))
LINE = Message((1, 2, 3))
FUNCTION = Message((1, 2, 3, 4, 5))
MAPPING = Message((1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
LOCATION = Message((1, 2, 3, 5), messages={4: LINE})
SAMPLE = Message((), repeated=(1, 2), messages={3: LABEL})


def read_varint(body: bytes, position: int) -> tuple[int, int]:
    """The varint at `position`, and where the next byte is. Raises MalformedProfile."""
    value = 0
    for k in range(MAX_BYTES):
        if position + k >= len(body):
            raise MalformedProfile("a varint is truncated", f"byte {position}")
        byte = body[position + k]
        value |= (byte & 0x7F) << (7 * k)
        if byte < 0x80:
            return value & _UINT64, position + k + 1
    raise MalformedProfile(f"a varint is longer than {MAX_BYTES} bytes", f"byte {position}")


def read_fields(body: bytes) -> Iterator[tuple[int, WireType, bytes]]:
    """Every field of a message: its number, wire type, and value as it lies there (a length field's
    without its length). Raises MalformedProfile.
    """
    position = 0
    while position < len(body):
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
            raise MalformedProfile(f"field {number} has wire type {kind}, which pprof lacks", f"byte {start}")
        if end > len(body):
            raise MalformedProfile(f"field {number} is longer than what is left", f"byte {start}")
        yield number, WireType(kind), body[position:end]
        position = end


def regular(body: bytes, message: Message, where: str) -> bytes:
    """The same message as profilers write it: known fields only, numbers before messages, repeats packed."""
    try:
        return _regular(body, message)
    except MalformedProfile as error:
        raise MalformedProfile(error.what, f"{where}, {error.where}" if error.where else where) from None


def _regular(body: bytes, message: Message) -> bytes:
    scalars: dict[int, bytes] = {}
    packed: dict[int, bytes] = {}
    messages: list[bytes] = []
    for number, kind, value in read_fields(body):
        if number in message.messages:
            _expect(kind, WireType.LENGTH, number)
            messages.append(_length_field(number, _regular(value, message.messages[number])))
        elif number in message.repeated:
            if kind == WireType.LENGTH:
                _check_packed(value)
            else:
                _expect(kind, WireType.VARINT, number)
            packed[number] = packed.get(number, b"") + value
        elif number in message.scalars:
            _expect(kind, WireType.VARINT, number)
            scalars[number] = encode_varint(number << 3) + value
    runs = [_length_field(number, run) for number, run in packed.items()]
    return b"".join([*scalars.values(), *runs, *messages])


def _length_field(number: int, value: bytes) -> bytes:
    return encode_varint(number << 3 | WireType.LENGTH) + encode_varint(len(value)) + value


def _expect(kind: WireType, expected: WireType, number: int) -> None:
    if kind != expected:
        raise MalformedProfile(f"field {number} has wire type {kind}, not {expected}")


def _check_packed(run: bytes) -> None:
    position = 0
    while position < len(run):
        _, position = read_varint(run, position)
