"""Protobuf varints, many at a time: seven bits a byte, the lowest first, the top bit set on all but the last.

Signed values are their two's complement in 64 bits, as protobuf's int64 has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pprof_merge.errors import MalformedProfile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pprof_merge.profile import Int64s, UInt64s

MAX_BYTES = 10


def decode_varints(buffer: NDArray[np.uint8]) -> tuple[Int64s, Int64s]:
    """All varints of a buffer that holds nothing else: their values, and the byte where each starts.

    Like Go's, the tenth byte's surplus bits are dropped. Raises MalformedProfile.
    """
    if not buffer.size:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if buffer[-1] >= 0x80:
        raise MalformedProfile("a varint is truncated")
    ends = np.flatnonzero(buffer < 0x80)
    starts = np.empty_like(ends)
    starts[0] = 0
    np.add(ends[:-1], 1, out=starts[1:])
    extra = ends - starts
    values = buffer[ends].astype(np.int64)
    longest = int(extra.max())
    if longest >= MAX_BYTES:
        raise MalformedProfile(f"a varint is longer than {MAX_BYTES} bytes")
    longer = np.flatnonzero(extra)
    for k in range(1, longest + 1):
        if k > 1:
            longer = longer[extra[longer] >= k]
        values[longer] = (values[longer] << 7) | (buffer[ends[longer] - k] & 0x7F)
    return values, starts


def varint_sizes(values: UInt64s) -> Int64s:
    """How many bytes each value takes."""
    sizes = np.ones(values.shape, np.int64)
    largest = int(values.max()) if values.size else 0
    for k in range(1, MAX_BYTES):
        if largest >> (7 * k) == 0:
            break
        sizes += values >= np.uint64(1 << (7 * k))
    return sizes


def encode_varints(values: UInt64s) -> bytes:
    """The varints of all values, one after another."""
    if not values.size:
        return b""
    sizes = varint_sizes(values)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    out = np.empty(int(ends[-1]), np.uint8)
    out[starts] = (values.astype(np.uint8) & 0x7F) | ((sizes > 1).astype(np.uint8) << 7)
    longer = np.flatnonzero(sizes > 1)
    for k in range(1, int(sizes.max())):
        if k > 1:
            longer = longer[sizes[longer] > k]
        septet = (values[longer] >> np.uint64(7 * k)).astype(np.uint8) & 0x7F
        out[starts[longer] + k] = septet | ((sizes[longer] > k + 1).astype(np.uint8) << 7)
    return out.tobytes()


def encode_varint(value: int) -> bytes:
    """The varint of one value; a negative one as its two's complement."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
