"""A table that stores each distinct row of integers once and numbers it. `Dictionary` keeps its functions,
locations and stacks in such tables.

It is a hash table with open addressing, whose every step NumPy does for many rows at once: each row looks at
the slot that its hash points to, takes it if it is free, stops if it holds an equal row, and tries the next
slot otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pprof_merge.columns.interning import GrowingArray
from pprof_merge.columns.ragged import offsets_of, rows_of_indexes, span_chunks
from pprof_merge.profile import Bools, Int64s, Ints, UInt64s

_Type = type[np.int32] | type[np.int64]

_MIN_SLOTS = 1 << 10
_FREE = np.int32(-1)
# Ragged columns, which may hold millions of values, are read so many values at a time to bound memory.
_CHUNK_VALUES = 1 << 14

# How many slots are tried for a row. With random hashes no row needs as many; rows that do, because somebody
# has constructed collisions, go to a dict.
_MAX_PROBES = 32


class Rows(NamedTuple):
    """n rows: fixed columns (n,), and ragged columns (m,) that share the rows' `offsets` (n + 1)."""

    fixed: Sequence[Ints]
    ragged: Sequence[Ints]
    offsets: Int64s

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, numbers: Ints, max_length: int | None = None) -> Rows:
        """Return copies of the rows with these numbers, in the order given.

        With `max_length`, only so many values of each row's ragged columns are taken, from the first on.
        """
        starts = self.offsets.take(numbers)
        counts = self.offsets[1:].take(numbers) - starts
        if max_length is not None:
            counts = np.minimum(counts, max_length)
        offsets = offsets_of(counts)
        ragged = [np.empty(offsets[-1], column.dtype) for column in self.ragged]
        if ragged:
            for values, index in span_chunks(starts, counts):
                for taken, column in zip(ragged, self.ragged, strict=True):
                    column.take(index, out=taken[values], mode="clip")  # other modes buffer `out`
        return Rows([column.take(numbers) for column in self.fixed], ragged, offsets)

    def between(self, begin: int, end: int) -> Rows:
        """Return the rows `begin` to `end` - 1. The columns are views; the offsets begin at 0."""
        values = slice(self.offsets[begin], self.offsets[end])
        return Rows(
            [column[begin:end] for column in self.fixed],
            [column[values] for column in self.ragged],
            self.offsets[begin : end + 1] - self.offsets[begin],
        )

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Yield the bounds (begin, end) of chunks of rows with about `_CHUNK_VALUES` ragged values each."""
        bounds = np.searchsorted(self.offsets, np.arange(0, self.offsets[-1], _CHUNK_VALUES)[1:])
        return pairwise(np.unique([0, *bounds.tolist(), len(self)]).tolist())


def _random_odd() -> int:
    return int.from_bytes(os.urandom(8)) | 1


class _Powers:
    """Powers of a random odd number and of its inverse, modulo 2^64.

    The number is secret and new in each process, so that nobody can construct rows whose hashes collide.
    """

    def __init__(self) -> None:
        base = _random_odd()
        # The factors that double the tables: base^n and base^-n, where n is their length, a power of 2.
        self._factors = np.array([[base], [pow(base, -1, 1 << 64)]], np.uint64)
        self._powers = np.ones((2, 1), np.uint64)

    def upto(self, count: int) -> tuple[UInt64s, UInt64s]:
        """Return base^i and base^-i for i from 0 to `count` - 1, or more of them."""
        while self._powers.shape[1] < count:
            self._powers = np.concatenate((self._powers, self._powers * self._factors), axis=1)
            self._factors *= self._factors
        return self._powers[0], self._powers[1]


_POWERS = _Powers()


def _multipliers(count: int) -> list[np.uint64]:
    return [np.uint64(_random_odd()) for _ in range(count)]


def _product(column: Ints, multiplier: np.uint64) -> UInt64s:
    product = column.astype(np.uint64)
    product *= multiplier
    return product


class RowTable:
    """Distinct rows, numbered from 0. A new row gets the next number; within one call the order of new rows
    is unspecified.

    `fixed` and `ragged` are the types of the columns. The caller sees to it that all values fit.
    """

    def __init__(self, fixed: Sequence[_Type], ragged: Sequence[_Type] = ()) -> None:
        self._fixed: list[GrowingArray[np.signedinteger[Any]]] = [GrowingArray(dtype) for dtype in fixed]
        self._ragged: list[GrowingArray[np.signedinteger[Any]]] = [GrowingArray(dtype) for dtype in ragged]
        self._ends: GrowingArray[np.int64] = GrowingArray(np.int64)
        self._ends.append(np.zeros(1, np.int64))
        # The hashes of the first rows; rows that `append` added have none until the next `intern`.
        self._hashes: GrowingArray[np.uint64] = GrowingArray(np.uint64)
        self._slots = np.full(_MIN_SLOTS, _FREE)
        # Rows that no slot was found for, by `_key`, with their numbers.
        self._overflow: dict[bytes, int] = {}
        self._fixed_multipliers = _multipliers(len(self._fixed))
        self._ragged_multipliers = _multipliers(len(self._ragged) - 1)  # the first column needs none
        self._count_multiplier, self._last_multiplier = _multipliers(2)

    def __len__(self) -> int:
        return len(self._ends.view) - 1

    @property
    def nbytes(self) -> int:
        """The memory of the table's arrays in bytes."""
        columns = sum(column.nbytes for column in (*self._fixed, *self._ragged))
        return columns + self._ends.nbytes + self._hashes.nbytes + self._slots.nbytes

    @property
    def rows(self) -> Rows:
        """All rows, without a copy. Do not keep them: the next `intern` or `append` may move the values."""
        return Rows(
            [column.view for column in self._fixed],
            [column.view for column in self._ragged],
            self._ends.view,
        )

    def since(self, number: int) -> Rows:
        """Return the rows from `number` on, as views of what is there now."""
        return self.rows.between(number, len(self))

    def append(self, rows: Rows) -> None:
        """Give the rows the next numbers, in their order. The caller knows that none is in the table yet."""
        self._ends.append(rows.offsets[1:] + self._ends.view[-1])
        for kept, column in zip(self._fixed, rows.fixed, strict=True):
            kept.append(column)
        for kept, column in zip(self._ragged, rows.ragged, strict=True):
            kept.append(column)

    def intern(self, rows: Rows) -> Int64s:
        """Return the number of each row (n,); new rows are added."""
        self._hash_appended()
        hashes = self._hash(rows)
        self._reserve(len(rows))
        numbers = self._look_up(rows, hashes)
        for row in np.flatnonzero(~self._equal(rows, numbers)).tolist():
            numbers[row] = self._intern_overflow(rows, hashes, row)
        return numbers

    def _hash_appended(self) -> None:
        """Hash the rows that `append` added. It is put off until now because reading needs no hashes."""
        n_hashed = len(self._hashes.view)
        if n_hashed < len(self):
            self._hashes.append(self._hash(self.since(n_hashed)))
            self._fill_slots(0)

    def _look_up(self, rows: Rows, hashes: UInt64s) -> Int64s:
        """Return a number for each row: its own, or any other if no slot was found. New rows are added."""
        numbers = np.zeros(len(rows), np.int64)
        new = []
        pending, slots = np.arange(len(rows)), self._slots_of(hashes)
        for _ in range(_MAX_PROBES):
            if not pending.size:
                break
            found = self._slots.take(slots)
            free = (found < 0).nonzero()[0]
            if free.size:
                new.append(self._claim(hashes, pending[free], slots[free]))
                found[free] = self._slots.take(slots[free])
            missed = (self._hashes.view.take(found) != hashes.take(pending)).nonzero()[0]
            numbers[pending] = found
            pending, slots = pending.take(missed), (slots.take(missed) + 1) & (len(self._slots) - 1)
        if new:
            self.append(rows.take(np.concatenate(new)))
        return numbers

    def _hash(self, rows: Rows) -> UInt64s:
        """Return a hash of each row's columns and length (n,). Equal rows have equal hashes."""
        hashes = np.empty(len(rows), np.uint64)
        for begin, end in rows.chunks():
            hashes[begin:end] = self._hash_chunk(rows.between(begin, end))
        return hashes

    def _hash_chunk(self, rows: Rows) -> UInt64s:
        starts, ends = rows.offsets[:-1], rows.offsets[1:]
        hashes = (ends - starts).view(np.uint64) * self._count_multiplier
        for column, multiplier in zip(rows.fixed, self._fixed_multipliers, strict=True):
            hashes += _product(column, multiplier)
        if rows.ragged:
            n_values = len(rows.ragged[0])
            powers, inverses = _POWERS.upto(n_values)
            values = rows.ragged[0].astype(np.uint64)
            for column, multiplier in zip(rows.ragged[1:], self._ragged_multipliers, strict=True):
                values += _product(column, multiplier)
            values *= powers[:n_values]
            # The sum of value * base^(position in the row), for each row that has values.
            filled = (ends > starts).nonzero()[0]
            starts = starts.take(filled)
            hashes[filled] += np.add.reduceat(values, starts) * inverses.take(starts)
        return hashes * self._last_multiplier

    def _slots_of(self, hashes: UInt64s) -> Int64s:
        # The upper bits of a product depend on all bits of its factors.
        return (hashes >> np.uint64(65 - len(self._slots).bit_length())).view(np.int64)

    def _reserve(self, more: int) -> None:
        """Make sure that the slots are at most half full after `more` rows are added."""
        if 2 * (len(self) + more) > len(self._slots):
            self._fill_slots(more)

    def _fill_slots(self, more: int) -> None:
        """Make slots for all rows and `more` others, and put all rows into them."""
        self._slots = np.full(max(_MIN_SLOTS, 1 << (4 * (len(self) + more)).bit_length()), _FREE)
        hashes = self._hashes.view
        pending = np.arange(len(self), dtype=np.int32)
        slots = self._slots_of(hashes)
        overflow = []
        for _ in range(_MAX_PROBES):
            free = self._slots[slots] < 0
            self._slots[slots[free]] = pending[free]
            found = self._slots[slots]
            missed = found != pending
            has_twin = missed & (hashes[found] == hashes[pending])  # `_look_up` would stop at that row
            overflow += pending[has_twin].tolist()
            missed &= ~has_twin
            pending, slots = pending[missed], (slots[missed] + 1) & (len(self._slots) - 1)
            if not pending.size:
                break
        overflow += pending.tolist()
        self._overflow = {_key(self.rows.take(np.array([number])), 0): number for number in overflow}

    def _claim(self, hashes: UInt64s, candidates: Int64s, slots: Int64s) -> Int64s:
        """Give each free slot to one of the candidate rows that want it; return the rows that got one.

        These rows get the next numbers, and their hashes are stored.
        """
        positions = np.arange(len(candidates), dtype=np.int32)
        self._slots[slots] = positions  # of several rows that write to one slot, one remains
        winners = (self._slots.take(slots) == positions).nonzero()[0]
        first = len(self._hashes.view)
        self._slots[slots.take(winners)] = np.arange(first, first + len(winners))
        winning: Int64s = candidates.take(winners)
        self._hashes.append(hashes.take(winning))
        return winning

    def _equal(self, rows: Rows, numbers: Int64s) -> Bools:
        """Return whether each row equals the row in the table that has its number (n,)."""
        kept_offsets = self._ends.view
        counts, kept_starts = rows.offsets[1:] - rows.offsets[:-1], kept_offsets.take(numbers)
        equal: Bools = counts == kept_offsets[1:].take(numbers) - kept_starts
        for kept, column in zip(self._fixed, rows.fixed, strict=True):
            equal &= kept.view.take(numbers) == column
        if kept_offsets[-1]:
            # If a row is longer than the row in the table, indexes may lie beyond the end: they are clipped.
            for values, index in span_chunks(kept_starts, counts):
                for kept, column in zip(self._ragged, rows.ragged, strict=True):
                    different = (kept.view.take(index, mode="clip") != column[values]).nonzero()[0]
                    if different.size:
                        equal[rows_of_indexes(rows.offsets, values.start + different)] = False
        return equal

    def _intern_overflow(self, rows: Rows, hashes: UInt64s, row: int) -> int:
        """Return the number of a row that found no slot, or has the hash of another row; add it if new."""
        key = _key(rows, row)
        if key not in self._overflow:
            self._overflow[key] = len(self)
            self._hashes.append(hashes[row : row + 1])
            self.append(rows.take(np.array([row])))
        return self._overflow[key]


def _key(rows: Rows, row: int) -> bytes:
    """Return a row as bytes, for a dict. Rows of different lengths have keys of different lengths."""
    values = slice(rows.offsets[row], rows.offsets[row + 1])
    columns = [column[row : row + 1] for column in rows.fixed] + [column[values] for column in rows.ragged]
    return b"".join(column.astype(np.int64).tobytes() for column in columns)
