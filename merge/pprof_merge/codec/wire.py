"""The wire format of protocol buffers: varints and fields, read from bytes and written to a column.

Signed numbers are in two's complement with 64 bits. As in google/pprof, surplus bits of a varint's tenth byte
are dropped, and groups are refused.
"""

from __future__ import annotations

from typing import Final, NoReturn

from librt.strings import read_i64_le
from librt.vecs import vec
from mypy_extensions import i64, u8

from pprof_merge.errors import MalformedProfile

VARINT: Final[i64] = 0
FIXED64: Final[i64] = 1
LENGTH: Final[i64] = 2
FIXED32: Final[i64] = 5

_MAX_BYTES: Final[i64] = 10
# Bytes from here on are not the last of their varint.
_LONG: Final[i64] = 128
# What is set in the tags of all fields but those that have a tag of one byte, and a varint behind it.
_NOT_SHORT: Final[i64] = 0x85
_NUMBER_BITS: Final[i64] = 0x1FFFFFFFFFFFFFFF
_REST_BITS: Final[i64] = 0x1FFFFFFFFFFFFFF


def varint(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """Return the varint at a position, and the position after it. Raises MalformedProfile."""
    if at < end:
        byte: i64 = data[at]
        if byte < 128:
            return byte, at + 1
    return long_varint(data, at, end)


def long_varint(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """Return what `varint` returns, for a varint of any length."""
    start: i64 = at
    value: i64 = 0
    shift: i64 = 0
    while at < end:
        byte: i64 = data[at]
        at += 1
        if shift == 63:
            if byte >= 128:
                refuse(f"a varint is longer than {_MAX_BYTES} bytes", start)
            return value | -(byte & 1) << 63, at
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    refuse("a varint is truncated", start)


def field(data: bytes, at: i64, end: i64) -> tuple[i64, i64, i64]:
    """Return the tag of the field at a position, its number or length, and the position after these.

    The content of a field with a length begins there. Of fixed numbers, which pprof does not use, the value
    is 0. Raises MalformedProfile.
    """
    if at <= i64(len(data)) - 8:
        # Tag and varint are taken from one word.
        word: i64 = read_i64_le(data, at)
        tag: i64 = word & 0xFF
        if tag & _NOT_SHORT == 0:
            value: i64 = word >> 8 & 0x7F
            size: i64 = 2
            if word & 0x8000 != 0:
                value |= word >> 9 & 0x3F80
                size = 3
                if word & 0x800000 != 0:
                    value |= word >> 10 & 0x1FC000
                    size = 4
                    if word & 0x80000000 != 0:
                        value |= word >> 11 & 0xFE00000
                        size = 5
                        if word & 0x8000000000 != 0:
                            return long_field(data, at, end)
            left: i64 = end - at - size
            if left >= 0 and (tag & 7 == VARINT or value <= left):
                return tag, value, at + size
    return long_field(data, at, end)


def long_field(data: bytes, at: i64, end: i64) -> tuple[i64, i64, i64]:
    """Return what `field` returns, for a field of any length."""
    start: i64 = at
    tag: i64 = i64(data[at]) if at < end else i64(_LONG)
    at += 1
    if tag >= _LONG:
        tag, at = long_varint(data, start, end)
    kind: i64 = tag & 7
    value: i64 = 0
    if kind == VARINT or kind == LENGTH:
        value = i64(data[at]) if at < end else i64(_LONG)
        if value < _LONG:
            at += 1
        else:
            value, at = long_varint(data, at, end)
        if kind == LENGTH and (value < 0 or value > end - at):
            refuse(f"field {number_of(tag)} is longer than the bytes that are left", start)
    elif kind == FIXED64 or kind == FIXED32:
        at += 8 if kind == FIXED64 else 4
        if at > end:
            refuse(f"field {number_of(tag)} is longer than the bytes that are left", start)
    else:
        refuse(f"field {number_of(tag)} has wire type {kind}, which pprof does not use", start)
    return tag, value, at


def number_of(tag: i64) -> i64:
    """Return the number of a field."""
    return tag >> 3 & _NUMBER_BITS


def refuse(what: str, at: i64) -> NoReturn:
    """Raise MalformedProfile for what is at a byte of the profile."""
    raise MalformedProfile(what, f"byte {at}")


def refuse_type(tag: i64, expected: i64) -> NoReturn:
    """Raise MalformedProfile for a field that has another wire type than its schema."""
    raise MalformedProfile(f"field {number_of(tag)} has wire type {tag & 7}, expected {expected}")


def read_scalars(data: bytes, at: i64, end: i64, cells: vec[i64], first: i64, n: i64) -> i64:
    """Read a message whose fields 1 to n are numbers into the cells from `first` on.

    Missing fields are 0; of a field that is given several times the last value counts. Returns how many
    unknown fields there are. Raises MalformedProfile.
    """
    unknown: i64 = 0
    for k in range(first, first + n):
        cells[k] = 0
    while at < end:
        tag, value, at = field(data, at, end)
        if 8 <= tag < 8 * n + 8:
            if tag & 7 != VARINT:
                refuse_type(tag, VARINT)
            cells[first + (tag >> 3) - 1] = value
        else:
            unknown += 1
            if tag & 7 == LENGTH:
                at += value
    return unknown


def count_varints(data: bytes, at: i64, end: i64) -> i64:
    """Return how many varints end in a run of bytes."""
    count: i64 = 0
    for i in range(at, end):
        byte: i64 = data[i]
        if byte < 128:
            count += 1
    return count


def read_packed(data: bytes, at: i64, end: i64, column: vec[i64], n: i64) -> i64:
    """Append packed numbers to the n cells of a column, which has room; return how many it has then."""
    while at < end:
        value: i64 = data[at]
        at += 1
        if value >= 128:
            second: i64 = i64(data[at]) if at < end else i64(128)
            if second < 128:  # most numbers have one or two bytes
                value = value & 127 | second << 7
                at += 1
            else:
                value, at = long_varint(data, at - 1, end)
        column[n] = value
        n += 1
    return n


def size_of(value: i64) -> i64:
    """Return how many bytes a number's varint has."""
    if value < 0:
        return _MAX_BYTES
    size: i64 = 1
    while value >= 128:
        value >>= 7
        size += 1
    return size


def field_size(value: i64) -> i64:
    """Return the bytes of a number with its tag, whose field number is below 16; 0 is left out."""
    return 1 + size_of(value) if value != 0 else i64(0)


def put(chars: vec[u8], at: i64, value: i64) -> i64:
    """Write a varint; return the position after it."""
    while value < 0 or value >= 128:
        chars[at] = u8(value & 127 | 128)
        value = value >> 7 & _REST_BITS
        at += 1
    chars[at] = u8(value)
    return at + 1


def put_field(chars: vec[u8], at: i64, number: i64, value: i64) -> i64:
    """Write a number with its tag; 0 is left out."""
    if value == 0:
        return at
    return put(chars, put(chars, at, number << 3), value)


def messages_in(data: bytes, at: i64, end: i64, number: i64, most: i64) -> list[tuple[int, int]]:
    """Return where each message begins and ends that a message has in the field of a number, up to `most`.

    Raises MalformedProfile.
    """
    found: list[tuple[int, int]] = []
    while at < end and i64(len(found)) < most:
        tag, value, at = field(data, at, end)
        if tag & 7 == LENGTH:
            if number_of(tag) == number:
                found.append((at, at + value))
            at += value
    return found


def counts_in(data: bytes, at: i64, end: i64) -> list[int]:
    """Return how often a message has each field below 16 with a length: messages, texts and packed numbers.

    Raises MalformedProfile.
    """
    counts = [0] * 16
    while at < end:
        tag, value, at = field(data, at, end)
        if tag & 7 == LENGTH:
            if tag < 128:
                counts[tag >> 3] += 1
            at += value
    return counts


def count_inside(data: bytes, outer: i64, inner: i64) -> int:
    """Return how many messages are in the field `inner` of those in the field `outer` of a message.

    Raises MalformedProfile.
    """
    count: i64 = 0
    at: i64 = 0
    end: i64 = i64(len(data))
    while at < end:
        tag, value, at = field(data, at, end)
        if tag & 7 != LENGTH:
            continue
        stop: i64 = at + value
        if number_of(tag) != outer:
            at = stop
        while at < stop:
            tag, value, at = field(data, at, stop)
            if tag & 7 == LENGTH:
                at += value
                if number_of(tag) == inner:
                    count += 1
    return int(count)
