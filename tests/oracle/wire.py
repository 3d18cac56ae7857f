"""The protobuf wire format by hand: what protobuf's own writer can't be made to write."""

from __future__ import annotations

VARINT, FIXED64, BYTES, GROUP_START, GROUP_END, FIXED32 = range(6)


def varint(number: int) -> bytes:
    """A number of 64 bits, negative ones as their two's complement."""
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def tag(field: int, wire_type: int) -> bytes:
    """What stands before a field's value."""
    return varint(field << 3 | wire_type)


def number(field: int, value: int) -> bytes:
    """A field that is a number."""
    return tag(field, VARINT) + varint(value)


def record(field: int, *parts: bytes) -> bytes:
    """A field that is a message (its fields are `parts`), a string, or numbers packed."""
    body = b"".join(parts)
    return tag(field, BYTES) + varint(len(body)) + body


def packed(field: int, *values: int) -> bytes:
    """A field of many numbers, packed."""
    return record(field, *map(varint, values))
