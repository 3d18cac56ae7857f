"""Ragged columns: rows of different lengths, as one flat column and the offsets of the rows in it."""

from __future__ import annotations

import numpy as np

from pprof_merge.profile import Bools, Int64s, Integers, Ints

_PART = 1 << 15


def offsets_of(counts: Integers | Bools) -> Int64s:
    """Offsets (n + 1) of rows of these lengths (n); of flags, how many are set before each."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def spans(starts: Int64s, counts: Int64s) -> Int64s:
    """The flat indexes starts[i], starts[i] + 1, … (counts[i] of them), for every i in turn."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - counts), counts) + np.arange(total)


def take_rows(offsets: Int64s, rows: Int64s) -> tuple[Int64s, Int64s]:
    """The flat indexes of some rows, in their order, and the offsets of what is taken."""
    counts = (offsets[1:] - offsets[:-1])[rows]
    return spans(offsets[:-1][rows], counts), offsets_of(counts)


def rows_at(offsets: Int64s, indexes: Int64s) -> Int64s:
    """The row to which each flat index belongs."""
    return np.searchsorted(offsets, indexes, side="right") - 1


def renumber(sequence: Ints, numbers: Int64s) -> None:
    """Puts in the place of each number in a sequence the one in `numbers`. It may be too long for a copy."""
    for begin in range(0, len(sequence), _PART):
        part = sequence[begin : begin + _PART]
        part[:] = numbers.take(part)


def first_appearance(sequence: Ints) -> tuple[Int64s, Int64s]:
    """The distinct numbers of a sequence in the order in which each appears first, and the inverse:
    (largest + 1,) with the new number of each old one, -1 where it doesn't appear.
    """
    first = np.full(int(sequence.max(initial=-1)) + 1, len(sequence), np.int64)
    # From the end, so that the first is set last; in parts, since a sequence may have millions.
    for end in range(len(sequence), 0, -_PART):
        part = sequence[max(0, end - _PART) : end]
        first[part[::-1]] = np.arange(end - 1, end - 1 - len(part), -1)
    present = np.flatnonzero(first < len(sequence))
    order = present[np.argsort(first[present])]
    renumbered = np.full(len(first), -1, np.int64)
    renumbered[order] = np.arange(len(order))
    return order, renumbered
