"""Rows of numbers, each kept once: how `Dictionary` knows a function, a location or a stack again.

A hash table whose every step is done for many rows at once, by NumPy: look where each row's hash points;
a free slot is taken, an equal row found, and those that meet another row look one slot further.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pprof_merge.columns.interning import GrowingArray
from pprof_merge.columns.ragged import offsets_of, parts_of_spans, rows_at
from pprof_merge.profile import Bools, Int64s, Ints, UInt64s

_Type = type[np.int32] | type[np.int64]

_FEWEST_SLOTS = 1 << 10
_FREE = np.int32(-1)
# So many words of ragged columns at a time bound what is needed beside the table, which may have millions.
_PART_WORDS = 1 << 14

# So many steps from where its hash points no honest row lies; one that somebody has contrived goes to a dict.
_MOST_STEPS = 32


class Rows(NamedTuple):
    """n rows: fixed columns (n,), and ragged columns (m,) with the rows' offsets (n + 1) in them."""

    fixed: Sequence[Ints]
    ragged: Sequence[Ints]
    offsets: Int64s

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, numbers: Ints, most: int | None = None) -> Rows:
        """Some of them, in the order of their numbers given; of ragged columns the first `most`, or all."""
        starts = self.offsets.take(numbers)
        counts = self.offsets[1:].take(numbers) - starts
        if most is not None:
            counts = np.minimum(counts, most)
        offsets = offsets_of(counts)
        ragged = [np.empty(offsets[-1], column.dtype) for column in self.ragged]
        if ragged:
            for words, index in parts_of_spans(starts, counts):
                for taken, column in zip(ragged, self.ragged, strict=True):
                    column.take(index, out=taken[words], mode="clip")  # other modes take a copy of `out`
        return Rows([column.take(numbers) for column in self.fixed], ragged, offsets)

    def between(self, begin: int, end: int) -> Rows:
        """The rows from one number to before another, where they are."""
        words = slice(self.offsets[begin], self.offsets[end])
        return Rows(
            [column[begin:end] for column in self.fixed],
            [column[words] for column in self.ragged],
            self.offsets[begin : end + 1] - self.offsets[begin],
        )

    def parts(self) -> Iterator[tuple[int, int]]:
        """All of them in parts with so few words that what is made of a part takes little memory."""
        bounds = np.searchsorted(self.offsets, np.arange(0, self.offsets[-1], _PART_WORDS)[1:])
        return pairwise(np.unique([0, *bounds.tolist(), len(self)]).tolist())


def _odd() -> int:
    return int.from_bytes(os.urandom(8)) | 1


class _Powers:
    """Powers of an odd number and of its inverse, modulo 2^64: of a multiplier that nobody can foresee."""

    def __init__(self) -> None:
        base = _odd()
        # The powers that come next, of the base and of its inverse.
        self._bases = np.array([[base], [pow(base, -1, 1 << 64)]], np.uint64)
        self._powers = np.ones((2, 1), np.uint64)  # as many as a power of 2

    def upto(self, count: int) -> tuple[UInt64s, UInt64s]:
        """base^i and base^-i for i below `count`."""
        while self._powers.shape[1] < count:
            self._powers = np.concatenate((self._powers, self._powers * self._bases), axis=1)
            self._bases *= self._bases
        return self._powers[0], self._powers[1]


_POWERS = _Powers()


def _multipliers(count: int) -> list[np.uint64]:
    return [np.uint64(_odd()) for _ in range(count)]


def _product(column: Ints, multiplier: np.uint64) -> UInt64s:
    product = column.astype(np.uint64)
    product *= multiplier
    return product


class RowTable:
    """Gives each new row the next number, from 0; which of the new ones of a call comes first is open.

    `fixed` and `ragged` are the types of the columns; a type must hold the numbers that come.
    """

    def __init__(self, fixed: Sequence[_Type], ragged: Sequence[_Type] = ()) -> None:
        self._fixed: list[GrowingArray[np.signedinteger[Any]]] = [GrowingArray(dtype) for dtype in fixed]
        self._ragged: list[GrowingArray[np.signedinteger[Any]]] = [GrowingArray(dtype) for dtype in ragged]
        self._ends: GrowingArray[np.int64] = GrowingArray(np.int64)
        self._ends.append(np.zeros(1, np.int64))
        # Of those rows that have been looked for; others came by `grow`.
        self._hashes: GrowingArray[np.uint64] = GrowingArray(np.uint64)
        self._slots = np.full(_FEWEST_SLOTS, _FREE)
        self._far: dict[bytes, int] = {}
        self._fixed_multipliers = _multipliers(len(self._fixed))
        self._ragged_multipliers = _multipliers(len(self._ragged) - 1)  # the first column has the powers
        self._count_multiplier, self._last_multiplier = _multipliers(2)

    def __len__(self) -> int:
        return len(self._ends.view) - 1

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        columns = sum(column.nbytes for column in (*self._fixed, *self._ragged))
        return columns + self._ends.nbytes + self._hashes.nbytes + self._slots.nbytes

    @property
    def rows(self) -> Rows:
        """All rows; not to be kept, since the next `intern` may move them."""
        return Rows(
            [column.view for column in self._fixed],
            [column.view for column in self._ragged],
            self._ends.view,
        )

    def take(self, numbers: Ints, most: int | None = None) -> Rows:
        """Some rows: see `Rows.take`."""
        return self.rows.take(numbers, most)

    def since(self, number: int) -> Rows:
        """The rows from that number on, as they are now."""
        return self.rows.between(number, len(self))

    def grow(self, rows: Rows) -> None:
        """Gives rows, none of which is there, the next numbers, in their order."""
        self._keep(rows)

    def intern(self, rows: Rows) -> Int64s:
        """The number of each row."""
        self._catch_up()
        hashes = self._hash(rows)
        self._make_room(len(rows))
        numbers = self._look_up(rows, hashes)
        for row in np.flatnonzero(~self._equal(rows, numbers)).tolist():
            numbers[row] = self._intern_far(rows, hashes, row)
        return numbers

    def _catch_up(self) -> None:
        """Hashes the rows that were never looked for: who only reads a table needs no hashes."""
        n_hashed = len(self._hashes.view)
        if n_hashed < len(self):
            self._hashes.append(self._hash(self.since(n_hashed)))
            self._fill_slots(0)

    def _look_up(self, rows: Rows, hashes: UInt64s) -> Int64s:
        """The numbers of rows with these hashes, new ones among them; any number where one lies too far."""
        numbers = np.zeros(len(rows), np.int64)
        new = []
        pending, slots = np.arange(len(rows)), self._slots_of(hashes)
        for _ in range(_MOST_STEPS):
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
            self._keep(rows.take(np.concatenate(new)))
        return numbers

    def _hash(self, rows: Rows) -> UInt64s:
        """Of each row's columns and length; equal rows have equal hashes."""
        hashes = np.empty(len(rows), np.uint64)
        for begin, end in rows.parts():
            hashes[begin:end] = self._hash_part(rows.between(begin, end))
        return hashes

    def _hash_part(self, rows: Rows) -> UInt64s:
        starts, ends = rows.offsets[:-1], rows.offsets[1:]
        hashes = (ends - starts).view(np.uint64) * self._count_multiplier
        for column, multiplier in zip(rows.fixed, self._fixed_multipliers, strict=True):
            hashes += _product(column, multiplier)
        if rows.ragged:
            n_words = len(rows.ragged[0])
            powers, inverses = _POWERS.upto(n_words)
            words = rows.ragged[0].astype(np.uint64)
            for column, multiplier in zip(rows.ragged[1:], self._ragged_multipliers, strict=True):
                words += _product(column, multiplier)
            words *= powers[:n_words]
            # The sum of a row's words times base^(place in the row), for those rows that have any.
            filled = (ends > starts).nonzero()[0]
            starts = starts.take(filled)
            hashes[filled] += np.add.reduceat(words, starts) * inverses.take(starts)
        return hashes * self._last_multiplier

    def _slots_of(self, hashes: UInt64s) -> Int64s:
        # The upper bits of a product depend on all bits of its factors.
        return (hashes >> np.uint64(65 - len(self._slots).bit_length())).view(np.int64)

    def _make_room(self, more: int) -> None:
        """Keeps the table at most half full."""
        if 2 * (len(self) + more) > len(self._slots):
            self._fill_slots(more)

    def _fill_slots(self, more: int) -> None:
        """Makes slots for so many more rows, and puts those that are there into them."""
        self._slots = np.full(max(_FEWEST_SLOTS, 1 << (4 * (len(self) + more)).bit_length()), _FREE)
        hashes = self._hashes.view
        pending = np.arange(len(self), dtype=np.int32)
        slots = self._slots_of(hashes)
        far = []
        for _ in range(_MOST_STEPS):
            free = self._slots[slots] < 0
            self._slots[slots[free]] = pending[free]
            found = self._slots[slots]
            missed = found != pending
            is_twin = missed & (hashes[found] == hashes[pending])
            far += pending[is_twin].tolist()
            missed &= ~is_twin
            pending, slots = pending[missed], (slots[missed] + 1) & (len(self._slots) - 1)
            if not pending.size:
                break
        far += pending.tolist()
        self._far = {_key(self.take(np.array([number])), 0): number for number in far}

    def _claim(self, hashes: UInt64s, candidates: Int64s, slots: Int64s) -> Int64s:
        """Gives each of the free slots to one of the candidates that want it; returns those that got one."""
        places = np.arange(len(candidates), dtype=np.int32)
        self._slots[slots] = places
        owners = (self._slots.take(slots) == places).nonzero()[0]
        first = len(self._hashes.view)
        self._slots[slots.take(owners)] = np.arange(first, first + len(owners))
        owning: Int64s = candidates.take(owners)
        self._hashes.append(hashes.take(owning))
        return owning

    def _keep(self, rows: Rows) -> None:
        """Keeps the columns of new rows, whose hashes are there."""
        self._ends.append(rows.offsets[1:] + self._ends.view[-1])
        for kept, column in zip(self._fixed, rows.fixed, strict=True):
            kept.append(column)
        for kept, column in zip(self._ragged, rows.ragged, strict=True):
            kept.append(column)

    def _equal(self, rows: Rows, numbers: Int64s) -> Bools:
        """Whether each row is the one kept under its number."""
        kept_offsets = self._ends.view
        counts, kept_starts = rows.offsets[1:] - rows.offsets[:-1], kept_offsets.take(numbers)
        equal: Bools = counts == kept_offsets[1:].take(numbers) - kept_starts
        for kept, column in zip(self._fixed, rows.fixed, strict=True):
            equal &= kept.view.take(numbers) == column
        if kept_offsets[-1]:
            # Where a row is longer than that kept, the index is perhaps beyond the end.
            for words, index in parts_of_spans(kept_starts, counts):
                for kept, column in zip(self._ragged, rows.ragged, strict=True):
                    different = (kept.view.take(index, mode="clip") != column[words]).nonzero()[0]
                    if different.size:
                        equal[rows_at(rows.offsets, words.start + different)] = False
        return equal

    def _intern_far(self, rows: Rows, hashes: UInt64s, row: int) -> int:
        """The number of a row that lies too far from where its hash points, or has another's hash."""
        key = _key(rows, row)
        if key not in self._far:
            self._far[key] = len(self)
            self._hashes.append(hashes[row : row + 1])
            self._keep(rows.take(np.array([row])))
        return self._far[key]


def _key(rows: Rows, row: int) -> bytes:
    """A row as bytes; rows of different lengths differ in theirs."""
    words = slice(rows.offsets[row], rows.offsets[row + 1])
    columns = [column[row : row + 1] for column in rows.fixed] + [column[words] for column in rows.ragged]
    return b"".join(column.astype(np.int64).tobytes() for column in columns)
