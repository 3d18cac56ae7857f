"""Protobuf varints, many at a time: seven bits a byte, the lowest first, the top bit set on all but the last.

Signed values are in two's complement with 64 bits, as protobuf's int64. The encoder works on codes: a code is
a varint of up to four bytes in a uint32, the first byte in the lowest bits, unused bytes 0. A longer varint
is several codes, one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pprof_merge.errors import MalformedProfile

if TYPE_CHECKING:
    from pprof_merge.profile import Bools, Bytes, Int64s, UInt32s, UInt64s

MAX_BYTES = 10

# Most varints have one or two bytes. This table gives their values by the last byte (the upper eight bits of
# the index) and the byte before it, which belongs to the varint if its top bit is set.
_PAIRS = np.arange(1 << 16, dtype=np.uint16)
_VALUE_OF_PAIR = np.where(_PAIRS & 0x80, _PAIRS >> 8 << 7 | _PAIRS & 0x7F, _PAIRS >> 8)
# A varint has three bytes or more if the top bits of the two bytes before its last are set. These are the
# bits in the four bytes up to the last, read as a little-endian number.
_WORD_BYTES = 4
_LONGER_THAN_TWO = np.uint32(0x00808000)
# Put before the input, so that every varint has bytes before it. The last zero ends a varint, so that the
# first byte of the input starts one.
_PADDING = b"\0" * MAX_BYTES

_CODE_BYTES = 4
_CODE_BITS = np.uint64(7 * _CODE_BYTES)
_CODE_MASK = np.uint64((1 << 7 * _CODE_BYTES) - 1)


def decode_varints(run: bytes) -> tuple[Int64s, Int64s]:
    """Return the n values of bytes that are nothing but varints, and the position where each starts (n + 1).

    The last start is the number of bytes. As in Go, surplus bits of a tenth byte are dropped. Raises
    MalformedProfile if a varint is truncated or longer than ten bytes.
    """
    padded = _PADDING + run
    buffer = np.frombuffer(padded, np.uint8)
    if buffer[-1] >= 0x80:
        raise MalformedProfile("a varint is truncated")
    # A varint starts where the byte before ends one.
    starts = (buffer[len(_PADDING) - 1 :] < 0x80).nonzero()[0]
    ends = starts[1:]
    # The four bytes up to each varint's last one, as one number.
    words = np.ndarray((len(run) + 1,), "<u4", padded, len(_PADDING) - _WORD_BYTES, strides=(1,)).take(ends)
    values = _VALUE_OF_PAIR.take(words >> np.uint32(16)).astype(np.int64)
    longer = (words & _LONGER_THAN_TWO == _LONGER_THAN_TWO).nonzero()[0]
    if longer.size:
        values[longer] = _longer_values(words.take(longer), buffer, ends.take(longer) + (len(_PADDING) - 1))
    return values, starts


def _longer_values(words: UInt32s, buffer: Bytes, last: Int64s) -> Int64s:
    """Return the values of varints of three bytes or more, whose last bytes are at `last` in the buffer."""
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
    """Return how many bytes each value's varint has, in the shape of `values`."""
    sizes = np.ones(values.shape, np.uint8)
    largest = int(values.max()) if values.size else 0
    for k in range(1, MAX_BYTES):
        if largest >> (7 * k) == 0:
            break
        sizes += values >= values.dtype.type(1 << (7 * k))
    return sizes


def codes_of(values: UInt32s) -> UInt32s:
    """Return the code of each value; all values are below 2^28."""
    codes = values & np.uint32(0x7F)
    for k in range(1, _CODE_BYTES):
        goes_on = values >= np.uint32(1 << (7 * k))
        if not goes_on.any():
            break
        codes |= (values & np.uint32(0x7F << (7 * k))) << np.uint32(k)
        codes |= goes_on.astype(np.uint32) << np.uint32(8 * k - 1)
    return codes


def code_parts(values: UInt64s) -> Iterator[tuple[UInt32s, Bools]]:
    """Yield the first code of every value, then the second, and so on, each with flags for the values that
    have such a code. The codes of the other values are undefined.
    """
    is_present = np.ones(values.shape, np.bool_)
    if values.max(initial=0) <= _CODE_MASK:  # the usual case
        yield codes_of(values.astype(np.uint32)), is_present
        return
    while is_present.any():
        part = (values & _CODE_MASK).astype(np.uint32)
        codes = codes_of(part)
        values = values >> _CODE_BITS
        goes_on = values != 0
        if goes_on.any():
            codes = np.where(goes_on, _spread(part) | np.uint32(0x80808080), codes)
        yield codes, is_present
        is_present = goes_on


def _spread(part: UInt32s) -> UInt32s:
    """Return 28 bits as four bytes of seven bits each, without top bits."""
    spread = part & np.uint32(0x7F)
    for k in range(1, _CODE_BYTES):
        spread |= (part & np.uint32(0x7F << (7 * k))) << np.uint32(k)
    return spread


def code_sizes(codes: UInt32s) -> Bytes:
    """Return how many bytes of each code are used."""
    is_present = _used_bytes(codes).view(np.uint8).reshape(-1, _CODE_BYTES)
    return is_present[:, 0] + is_present[:, 1] + is_present[:, 2] + is_present[:, 3]


def encode_codes(codes: UInt32s) -> bytes:
    """Return the used bytes of all codes, one code after another."""
    return np.compress(_used_bytes(codes).view(np.bool_), codes.view(np.uint8)).tobytes()


def _used_bytes(codes: UInt32s) -> UInt32s:
    """Return a 1 in each byte that is used: the first, and each that follows a byte with the top bit set."""
    return ((codes & np.uint32(0x808080)) << np.uint32(1)) | np.uint32(1)


def encode_varint(value: int) -> bytes:
    """Return the varint of one value; a negative value is written in two's complement."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
