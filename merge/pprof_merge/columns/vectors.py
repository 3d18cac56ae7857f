"""Flat columns of numbers, and their hashes: the same compiled and interpreted.

A column is a `vec`, an array of fixed size that NumPy can look at without a copy. It grows by being replaced
by a larger one.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_le, read_i64_le
from librt.vecs import vec
from mypy_extensions import i32, i64

_LOW: Final[i64] = 0xFFFFFFFF
# Odd, and of 31 bits: a product with 32 bits fits into 63, so that it never wraps.
_FIRST: Final[i64] = 0x7FEB352D
_SECOND: Final[i64] = 0x5BD1E995


def zeros(size: i64) -> vec[i64]:
    """Return a column of zeros."""
    return vec[i64]([i64(0)] * size)


def zeros32(size: i64) -> vec[i32]:
    """Return a column of zeros of 32 bits."""
    return vec[i32]([i32(0)] * size)


def room(column: vec[i64], size: i64) -> vec[i64]:
    """Return the column, or a longer copy of it, with `size` cells or more."""
    have: i64 = i64(len(column))
    if size <= have:
        return column
    longer = zeros(size + 64 + (size >> 2))
    for i in range(have):
        longer[i] = column[i]
    return longer


def room32(column: vec[i32], size: i64) -> vec[i32]:
    """Return the column, or a longer copy of it, with `size` cells or more."""
    have: i64 = i64(len(column))
    if size <= have:
        return column
    longer = zeros32(size + 64 + (size >> 2))
    for i in range(have):
        longer[i] = column[i]
    return longer


def copy_into(column: vec[i64], begin: i64, source: bytes) -> None:
    """Set the cells from `begin` on to the numbers (int64, little-endian) in `source`."""
    for i in range(i64(len(source)) >> 3):
        column[begin + i] = read_i64_le(source, 8 * i)


def copy_into32(column: vec[i32], begin: i64, source: bytes) -> None:
    """Set the cells from `begin` on to the numbers (int32, little-endian) in `source`."""
    for i in range(i64(len(source)) >> 2):
        column[begin + i] = read_i32_le(source, 4 * i)


def column_of(source: bytes) -> vec[i64]:
    """Return a column of the numbers (int64, little-endian) in `source`."""
    return vec[i64](memoryview(source).cast("q"))


def column32_of(source: bytes) -> vec[i32]:
    """Return a column of the numbers (int32, little-endian) in `source`."""
    return vec[i32](memoryview(source).cast("i"))


def bytes_of(column: vec[i64], size: i64) -> bytes:
    """Return the first cells of a column as bytes, from which `column_of` makes it again."""
    return bytes(memoryview(column)[:size])


def bytes32_of(column: vec[i32], size: i64) -> bytes:
    """Return the first cells of a column of 32 bits as bytes, from which `column32_of` makes it again."""
    return bytes(memoryview(column)[:size])


def wrapped(value: i64) -> i64:
    """Return a sum or difference of two numbers as 64 bits hold it; compiled numbers wrap by themselves."""
    high: i64 = value >> 63
    if high == 0 or high == -1:
        return value
    return value - ((high + 1) >> 1 << 32 << 32)


def mixed(hash_: i64, word: i64) -> i64:
    """Return a hash of 63 bits, continued with a word."""
    both: i64 = hash_ ^ word
    hash_ = (both & _LOW) * _FIRST ^ (both >> 32 & _LOW) * _SECOND
    return hash_ ^ hash_ >> 29
