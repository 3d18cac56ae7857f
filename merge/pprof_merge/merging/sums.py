"""Sums of values by stack: a merge adds up samples in them, each profile as it is or times a factor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from pprof_merge.arrays import Int64s, Ints
from pprof_merge.merging.selection import Chunk
from pprof_merge.merging.weights import FACTOR_BITS

_ROUGH_BITS = 30
# How many values are multiplied at a time, so that they stay in the processor's cache.
_CACHED_ROWS = 1 << 14


class Sums(Protocol):
    """The sums of all chunks added so far, (n_stacks, n_types)."""

    def resize(self, n_stacks: int, n_types: int) -> None:
        """Make room for the stacks 0 to `n_stacks` - 1, which are not fewer than before."""

    def add(self, chunk: Chunk) -> None:
        """Add the values of a chunk."""

    def take(self, stacks: Ints) -> Int64s:
        """Return the sums of these stacks, (k, n_types)."""


class PlainSums:
    """Sums of profiles as they are: exact, and wrapping at 64 bits, as in Go."""

    def __init__(self) -> None:
        self._sums = np.zeros((0, 0), np.int64)

    def resize(self, n_stacks: int, n_types: int) -> None:
        """See `Sums`."""
        sums = np.zeros((n_stacks, n_types), np.int64)
        if len(self._sums):
            sums[: len(self._sums)] = self._sums
        self._sums = sums

    def add(self, chunk: Chunk) -> None:
        """See `Sums`."""
        for column in range(chunk.values.shape[1]):
            self.add_column(column, chunk.stacks, chunk.values[:, column])

    def add_column(self, column: int, stacks: Ints, values: Int64s) -> None:
        """Add values (m,) of the sample type in `column` to the sums of `stacks` (m,)."""
        np.add.at(self._sums[:, column], stacks, values)

    def take(self, stacks: Ints) -> Int64s:
        """See `Sums`."""
        return self._sums[stacks]


class SizeSums(PlainSums):
    """Sums of values without their signs."""

    def add_column(self, column: int, stacks: Ints, values: Int64s) -> None:
        """See `PlainSums`."""
        super().add_column(column, stacks, np.abs(values))


class WeightedSums:
    """Sums of profiles times factors: exact, and rounded once, to the nearest integer, half to even.

    `factors` has one factor for each profile, in units of 2^-32, in the order in which profiles are added.
    `scales` has one for each sample type, by which all values of that type are multiplied too. The caller
    sees to it that the magnitudes of the weighted values add up to 2^61 at most.

    Products and sums have up to 93 bits. They are kept in two sums of 64 bits: `_lower` has the lower bits,
    and wraps; `_rough` has the products in units of 2^30, rounded. The rounding errors add up to far less
    than 2^64, so only one number fits both sums.
    """

    def __init__(self, factors: Sequence[int], scales: Sequence[int]) -> None:
        self._lower_factors = np.array([factor % (1 << 64) for factor in factors], np.uint64).view(np.int64)
        self._rough_factors = np.array(factors, np.float64) / (1 << _ROUGH_BITS)
        self._scales = np.array(scales, np.int64)
        self._lower, self._rough = PlainSums(), PlainSums()
        self._n_added = 0

    def resize(self, n_stacks: int, n_types: int) -> None:
        """See `Sums`."""
        self._lower.resize(n_stacks, n_types)
        self._rough.resize(n_stacks, n_types)

    def add(self, chunk: Chunk) -> None:
        """See `Sums`."""
        counts = np.diff(chunk.offsets)
        profiles = slice(self._n_added, self._n_added + len(counts))
        self._n_added += len(counts)
        lower = np.repeat(self._lower_factors[profiles], counts)
        rough = np.repeat(self._rough_factors[profiles], counts)
        for begin in range(0, len(chunk.stacks), _CACHED_ROWS):
            rows = slice(begin, begin + _CACHED_ROWS)
            for column, scale in enumerate(self._scales):
                values = chunk.values[rows, column] * scale
                self._lower.add_column(column, chunk.stacks[rows], values * lower[rows])
                products = chunk.values[rows, column] * (rough[rows] * scale)
                self._rough.add_column(column, chunk.stacks[rows], products.astype(np.int64))

    def take(self, stacks: Ints) -> Int64s:
        """See `Sums`. A sum that isn't 0 is not rounded to 0, but to 1 or -1."""
        lower, rough = self._lower.take(stacks), self._rough.take(stacks)
        # The exact sums are upper * 2^64 + lower.
        upper_bits = 64 - _ROUGH_BITS
        upper = (rough - (lower >> _ROUGH_BITS) + (1 << (upper_bits - 1))) >> upper_bits
        whole = (upper << (64 - FACTOR_BITS)) + (lower >> FACTOR_BITS)
        rest = lower & ((1 << FACTOR_BITS) - 1)
        half = 1 << (FACTOR_BITS - 1)
        rounded = whole + ((rest > half) | ((rest == half) & (whole & 1 == 1)))
        lost = (rounded == 0) & ((whole != 0) | (rest != 0))
        return np.where(lost, np.where(whole < 0, -1, 1), rounded)
