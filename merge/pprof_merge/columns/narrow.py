"""Narrow columns: integers in as few bytes as most of them need, used in place, as in a mapped file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pprof_merge.arrays import Int64s, Ints
from pprof_merge.columns.ragged import offsets_of, spans

_LOW_BITS = 16
# The widths of `low` and `high` in bytes.
_WIDTHS = ((1, 0), (2, 0), (2, 1), (4, 0), (8, 0))
_DTYPES = {0: np.uint8, 1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.int64}
# The bytes that a large integer takes besides.
_LARGE_BYTES = 12


class Narrow(NamedTuple):
    """Integers (n,): `low` (n,), plus 65,536 times `high` (n,) unless that is empty.

    Integers that don't fit, or are negative, are in `large`, with their indexes in `large_at`, ascending. If
    all are 0, `low` is empty, too.
    """

    low: Any
    high: Any
    large_at: Any
    large: Int64s

    @property
    def nbytes(self) -> int:
        """The memory in bytes."""
        return sum(part.nbytes for part in self)


def narrowed(numbers: Ints) -> Narrow:
    """Return integers (n,) in as few bytes as they take."""
    numbers = numbers.astype(np.int64, copy=False)
    unsigned = numbers.view(np.uint64)
    if not unsigned.any():
        return _parts(numbers[:0], 0, 0, np.zeros(0, np.uint32), numbers[:0])
    costs = []
    for low, high in _WIDTHS:
        n_large = np.count_nonzero(unsigned >> np.uint64(8 * (low + high))) if low < 8 else 0
        costs.append((len(numbers) * (low + high) + n_large * _LARGE_BYTES, low, high))
        if not n_large:
            break
    _, low, high = min(costs)
    is_large = unsigned >> np.uint64(8 * (low + high)) != 0 if low < 8 else np.zeros(len(numbers), np.bool_)
    at = np.flatnonzero(is_large)
    return _parts(np.where(is_large, 0, numbers), low, high, at.astype(np.uint32), numbers[at])


def _parts(numbers: Int64s, low: int, high: int, at: Any, large: Int64s) -> Narrow:
    upper = numbers[: len(numbers) if high else 0] >> _LOW_BITS
    return Narrow(numbers.astype(_DTYPES[low]), upper.astype(_DTYPES[high]), at, large)


class Slices:
    """Slices of columns: of column owners[i], from begins[i] to ends[i] - 1, for every i; at least one."""

    def __init__(self, owners: Ints, begins: Int64s, ends: Int64s) -> None:
        self.owners, self.begins, self.ends = owners, begins, ends
        self.listed = [*zip(owners.tolist(), begins.tolist(), ends.tolist(), strict=True)]


class NarrowColumns:
    """Narrow columns one after another; `sizes` (n,) are those of the columns."""

    def __init__(self, columns: Sequence[Narrow], sizes: Int64s) -> None:
        self._bases = offsets_of(sizes)
        self._low = [_or_zeros(column.low, size) for column, size in zip(columns, sizes, strict=True)]
        self._high = [_or_zeros(column.high, size) for column, size in zip(columns, sizes, strict=True)]
        self.is_zero = not any(len(column.low) for column in columns)
        self._has_high = any(len(column.high) for column in columns)
        none = np.zeros(0, np.int64)
        at = [column.large_at + base for column, base in zip(columns, self._bases[:-1], strict=True)]
        self._large_at = np.concatenate([none, *at], dtype=np.int64)
        self._large = np.concatenate([none, *(column.large for column in columns)], dtype=np.int64)

    def take(self, slices: Slices, into: Int64s) -> None:
        """Write these integers into an array (m,)."""
        np.concatenate([self._low[owner][begin:end] for owner, begin, end in slices.listed], out=into)
        if self._has_high:
            high = np.empty_like(into)
            np.concatenate([self._high[owner][begin:end] for owner, begin, end in slices.listed], out=high)
            high <<= _LOW_BITS
            into |= high
        if len(self._large):
            firsts = slices.begins + self._bases[slices.owners]
            counts = slices.ends - slices.begins
            found, until = np.searchsorted(self._large_at, np.stack((firsts, firsts + counts)))
            which = spans(found, until - found)
            places = np.repeat(offsets_of(counts)[:-1] - firsts, until - found) + self._large_at[which]
            into[places] = self._large[which]


def _or_zeros(part: Any, size: int) -> Any:
    """Return a part of a narrow column, or zeros, which take no memory, if it is empty."""
    return part if len(part) else np.broadcast_to(np.uint8(0), size)
