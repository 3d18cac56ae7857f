"""Sums of values by stack: what a merge adds traces up in, each profile as it is or by a factor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from pprof_merge.merging.selection import Chunk
from pprof_merge.profile import Bools, Int64s, Ints

# Factors are whole numbers of 2^-32.
FACTOR_BITS = 32
_ROUGH_BITS = 30
# So many values at a time stay in the processor's cache from step to step.
_CACHED_ROWS = 1 << 14


class Sums(Protocol):
    """Sums of all chunks so far, (n_stacks, n_types)."""

    def make_room(self, n_stacks: int, n_types: int) -> None:
        """For stacks up to that number; there is never less room than before."""

    def add(self, chunk: Chunk) -> None:
        """Adds the traces of some profiles."""

    def take(self, stacks: Ints) -> Int64s:
        """The sums of some stacks, (k, n_types)."""


def are_counted(values: Int64s) -> Bools:
    """Which rows (m,) of values (m, n_types) aren't all 0."""
    counted = np.zeros(len(values), np.bool_)
    for column in values.T:  # a step a column, where any(axis=1) is one a row
        counted |= column != 0
    return counted


class PlainSums:
    """Each profile as it is: exact, and wrapping at 64 bits as Go's."""

    def __init__(self) -> None:
        self._sums = np.zeros((0, 0), np.int64)

    def make_room(self, n_stacks: int, n_types: int) -> None:
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
        """Adds values of one sample type, (m,), to those of stacks (m,)."""
        np.add.at(self._sums[:, column], stacks, values)

    def take(self, stacks: Ints) -> Int64s:
        """See `Sums`."""
        return self._sums[stacks]


class WeightedSums:
    """Each profile by a factor, exact, and rounded once, to the nearest integer and half to even.

    `factors` are those of the profiles in the order in which they are added, in 2^-32; `scales` one
    for each sample type, by which all values of that type are multiplied besides. Weighted values may
    add up to 2^61 in magnitude, which is for the caller to see to.

    Products and sums have up to 93 bits. Two sums of 64 bits tell them: one of the lower bits, which
    wraps, and one of the products rounded to 2^30. The rounding adds up to far less than 2^64, so that
    there is one number only which both can be of.
    """

    def __init__(self, factors: Sequence[int], scales: Sequence[int]) -> None:
        self._lower_factors = np.array([factor % (1 << 64) for factor in factors], np.uint64).view(np.int64)
        self._rough_factors = np.array(factors, np.float64) / (1 << _ROUGH_BITS)
        self._scales = np.array(scales, np.int64)
        self._lower, self._rough = PlainSums(), PlainSums()
        self._n_added = 0

    def make_room(self, n_stacks: int, n_types: int) -> None:
        """See `Sums`."""
        self._lower.make_room(n_stacks, n_types)
        self._rough.make_room(n_stacks, n_types)

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
        """See `Sums`. What isn't 0 doesn't become 0: it is at least 1, or at most -1."""
        lower, rough = self._lower.take(stacks), self._rough.take(stacks)
        # The sums are upper * 2^64 + lower.
        upper_bits = 64 - _ROUGH_BITS
        upper = (rough - (lower >> _ROUGH_BITS) + (1 << (upper_bits - 1))) >> upper_bits
        whole = (upper << (64 - FACTOR_BITS)) + (lower >> FACTOR_BITS)
        rest = lower & ((1 << FACTOR_BITS) - 1)
        half = 1 << (FACTOR_BITS - 1)
        rounded = whole + ((rest > half) | ((rest == half) & (whole & 1 == 1)))
        lost = (rounded == 0) & ((whole != 0) | (rest != 0))
        return np.where(lost, np.where(whole < 0, -1, 1), rounded)
