"""Protobuf varints, many at a time: seven bits a byte, the lowest first, the top bit set on all but the last.

Signed values are their two's complement in 64 bits, as protobuf's int64 has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pprof_merge.errors import MalformedProfile

if TYPE_CHECKING:
    from pprof_merge.profile import Bools, Bytes, Int64s, UInt32s, UInt64s

MAX_BYTES = 10

# Most varints have one or two bytes: the value, by the last byte (the upper one) and the one before it.
_PAIRS = np.arange(1 << 16, dtype=np.uint16)
_VALUE_OF_PAIR = np.where(_PAIRS & 0x80, _PAIRS >> 8 << 7 | _PAIRS & 0x7F, _PAIRS >> 8)
# Those that have more have the top bit set in the two bytes before the last, of a word of four that it ends.
_WORD_BYTES = 4
_GOES_ON_TWICE = np.uint32(0x00808000)
_BEFORE = b"\0" * MAX_BYTES  # so that the first byte ends one too, and there are bytes before any varint

# And written as a code of four bytes, or several.
_CODE_BYTES = 4
_CODE_BITS = np.uint64(7 * _CODE_BYTES)
_CODE_MASK = np.uint64((1 << 7 * _CODE_BYTES) - 1)


def decode_varints(run: bytes) -> tuple[Int64s, Int64s]:
    """All varints of some bytes that hold nothing else: their n values, and the byte where each starts.

    The starts (n + 1) end with the number of bytes. Like Go's, the tenth byte's surplus bits are dropped.
    Raises MalformedProfile.
    """
    joined = _BEFORE + run
    buffer = np.frombuffer(joined, np.uint8)
    if buffer[-1] >= 0x80:
        raise MalformedProfile("a varint is truncated")
    # Where the byte before ends a varint.
    starts = (buffer[len(_BEFORE) - 1 :] < 0x80).nonzero()[0]
    ends = starts[1:]
    words = np.ndarray((len(run) + 1,), "<u4", joined, len(_BEFORE) - _WORD_BYTES, strides=(1,)).take(ends)
    values = _VALUE_OF_PAIR.take(words >> np.uint32(16)).astype(np.int64)
    longer = (words & _GOES_ON_TWICE == _GOES_ON_TWICE).nonzero()[0]
    if longer.size:
        values[longer] = _longer_values(words.take(longer), buffer, ends.take(longer) + (len(_BEFORE) - 1))
    return values, starts


def _longer_values(words: UInt32s, buffer: Bytes, last: Int64s) -> Int64s:
    """The values of varints of three bytes or more, whose last bytes are there in the buffer."""
    three = words >> np.uint32(24) << np.uint32(14)
    three |= (words >> np.uint32(9) & np.uint32(0x3F80)) | (words >> np.uint32(8) & np.uint32(0x7F))
    has_fourth = words & np.uint32(0x80) != 0
    values = np.where(has_fourth, three << np.uint32(7) | words & np.uint32(0x7F), three).astype(np.int64)
    position = last - _WORD_BYTES
    longer = (has_fourth & (buffer.take(position) >= 0x80)).nonzero()[0]
    position = position.take(longer)
    for _length in range(_WORD_BYTES + 1, MAX_BYTES + 1):
        if not longer.size:
            return values
        values[longer] = values[longer] << 7 | buffer.take(position) & 0x7F
        position -= 1
        goes_on = (buffer.take(position) >= 0x80).nonzero()[0]
        longer, position = longer[goes_on], position[goes_on]
    if longer.size:
        raise MalformedProfile(f"a varint is longer than {MAX_BYTES} bytes")
    return values


def varint_sizes(values: UInt64s | UInt32s) -> Bytes:
    """How many bytes each value takes."""
    sizes = np.ones(values.shape, np.uint8)
    largest = int(values.max()) if values.size else 0
    for k in range(1, MAX_BYTES):
        if largest >> (7 * k) == 0:
            break
        sizes += values >= values.dtype.type(1 << (7 * k))
    return sizes


def codes_of(values: UInt32s) -> UInt32s:
    """The varints of values below 2^28, each in four bytes, the lowest first and those not needed 0."""
    codes = values & np.uint32(0x7F)
    for k in range(1, _CODE_BYTES):
        goes_on = values >= np.uint32(1 << (7 * k))
        if not goes_on.any():
            break
        codes |= (values & np.uint32(0x7F << (7 * k))) << np.uint32(k)
        codes |= goes_on.astype(np.uint32) << np.uint32(8 * k - 1)
    return codes


def parts_of(values: UInt64s) -> Iterator[tuple[UInt32s, Bools]]:
    """The codes of any values, in as many parts as the largest needs; and which values have the part."""
    is_there = np.ones(values.shape, np.bool_)
    if values.max(initial=0) <= _CODE_MASK:  # nearly always
        yield codes_of(values.astype(np.uint32)), is_there
        return
    while is_there.any():
        part = (values & _CODE_MASK).astype(np.uint32)
        codes = codes_of(part)
        values = values >> _CODE_BITS
        goes_on = values != 0
        if goes_on.any():
            codes = np.where(goes_on, _spread(part) | np.uint32(0x80808080), codes)
        yield codes, is_there
        is_there = goes_on


def _spread(part: UInt32s) -> UInt32s:
    """Seven bits a byte."""
    spread = part & np.uint32(0x7F)
    for k in range(1, _CODE_BYTES):
        spread |= (part & np.uint32(0x7F << (7 * k))) << np.uint32(k)
    return spread


def code_sizes(codes: UInt32s) -> Bytes:
    """How many bytes each code takes."""
    is_there = _bytes_there(codes).view(np.uint8).reshape(-1, _CODE_BYTES)
    return is_there[:, 0] + is_there[:, 1] + is_there[:, 2] + is_there[:, 3]


def encode_codes(codes: UInt32s) -> bytes:
    """The bytes of codes, one after another, without those not needed."""
    return np.compress(_bytes_there(codes).view(np.bool_), codes.view(np.uint8)).tobytes()


def _bytes_there(codes: UInt32s) -> UInt32s:
    """1 in each byte that is needed: the first, and those that follow one with the top bit set."""
    return ((codes & np.uint32(0x808080)) << np.uint32(1)) | np.uint32(1)


def encode_varint(value: int) -> bytes:
    """The varint of one value; a negative one as its two's complement."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
