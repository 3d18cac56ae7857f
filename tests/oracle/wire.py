"""The protobuf wire format written by hand, for messages that protobuf's own writer can't write."""

from __future__ import annotations

VARINT, FIXED64, BYTES, GROUP_START, GROUP_END, FIXED32 = range(6)


def varint(number: int) -> bytes:
    """Return a number of 64 bits as a varint; negative numbers are in two's complement."""
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def tag(field: int, wire_type: int) -> bytes:
    """Return the tag of a field."""
    return varint(field << 3 | wire_type)


def number(field: int, value: int) -> bytes:
    """Return a field that is a number."""
    return tag(field, VARINT) + varint(value)


def record(field: int, *parts: bytes) -> bytes:
    """Return a field that is a message with the fields `parts`, a string, or packed numbers."""
    body = b"".join(parts)
    return tag(field, BYTES) + varint(len(body)) + body


def packed(field: int, *values: int) -> bytes:
    """Return a field of packed numbers."""
    return record(field, *map(varint, values))
