"""Ragged columns: rows of different lengths, as one flat array and the offsets of the rows in it."""

from __future__ import annotations

import numpy as np

from pprof_merge.arrays import Bools, Int64s, Integers, Ints

# Loops work on this many numbers at a time, so that a chunk stays in the processor's cache.
_CHUNK = 1 << 16


def offsets_of(counts: Integers | Bools) -> Int64s:
    """Return the offsets (n + 1) of rows with these lengths (n).

    For flags (n), entry i is the number of flags that are set before i.
    """
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def spans(starts: Int64s, counts: Int64s) -> Int64s:
    """Return the flat indexes starts[i], starts[i] + 1, … (counts[i] of them), for every i in turn."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - counts), counts) + np.arange(total)


def take_rows(offsets: Int64s, rows: Int64s) -> tuple[Int64s, Int64s]:
    """Return the flat indexes of the given rows, in the given order, and the offsets of the rows taken."""
    counts = (offsets[1:] - offsets[:-1])[rows]
    return spans(offsets[:-1][rows], counts), offsets_of(counts)


def rows_of_indexes(offsets: Int64s, indexes: Int64s) -> Int64s:
    """Return the row that each flat index belongs to."""
    return np.searchsorted(offsets, indexes, side="right") - 1


def first_appearance(sequence: Ints) -> tuple[Int64s, Int64s]:
    """Return the distinct numbers of a sequence in order of first appearance, and the inverse of that.

    The inverse is (largest number + 1,): the position of each number in that order, -1 for numbers that do
    not appear.
    """
    size = int(sequence.max(initial=-1)) + 1
    order = sequence[first_positions(sequence, np.zeros(size, np.bool_))].astype(np.int64)
    inverse = np.full(size, -1, np.int64)
    inverse[order] = np.arange(len(order))
    return order, inverse


def first_positions(sequence: Ints, is_known: Bools) -> Int64s:
    """Return, in ascending order, the positions in `sequence` where an unknown number appears first.

    `is_known` has a flag for every number that can appear; the flags of the numbers found are set.
    """
    first = np.empty(len(is_known), np.int64)
    found = [np.zeros(0, np.int64)]
    for begin in range(0, len(sequence), _CHUNK):
        chunk = sequence[begin : begin + _CHUNK]
        positions = np.flatnonzero(~is_known.take(chunk))  # few, after the first chunks
        new = chunk[positions]
        first[new[::-1]] = positions[::-1]
        found.append(begin + positions[first.take(new) == positions])
        is_known[new] = True
    return np.concatenate(found)
