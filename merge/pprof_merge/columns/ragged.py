"""Ragged columns: rows of different lengths, as one flat column and the offsets of the rows in it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pprof_merge.profile import Bools, Int64s, Integers, Ints

# So many numbers at a time, or rows of them, stay in the processor's cache from step to step.
_CHUNK = 1 << 16
_CHUNK_ROWS = 1 << 12


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


def parts_of_spans(starts: Int64s, counts: Int64s) -> Iterator[tuple[slice, Int64s]]:
    """The indexes that `spans` gives, part by part: which of them a part is, and the part."""
    begin = 0
    for first in range(0, len(counts), _CHUNK_ROWS):
        rows = slice(first, first + _CHUNK_ROWS)
        part = spans(starts[rows], counts[rows])
        yield slice(begin, begin + len(part)), part
        begin += len(part)


def take_rows(offsets: Int64s, rows: Int64s) -> tuple[Int64s, Int64s]:
    """The flat indexes of some rows, in their order, and the offsets of what is taken."""
    counts = (offsets[1:] - offsets[:-1])[rows]
    return spans(offsets[:-1][rows], counts), offsets_of(counts)


def rows_at(offsets: Int64s, indexes: Int64s) -> Int64s:
    """The row to which each flat index belongs."""
    return np.searchsorted(offsets, indexes, side="right") - 1


def renumber(sequence: Ints, numbers: Int64s) -> None:
    """Puts in the place of each number in a sequence the one in `numbers`. It may be too long for a copy."""
    for begin in range(0, len(sequence), _CHUNK):
        chunk = sequence[begin : begin + _CHUNK]
        chunk[:] = numbers.take(chunk)


def first_appearance(sequence: Ints) -> tuple[Int64s, Int64s]:
    """The distinct numbers of a sequence in the order in which each appears first, and the inverse:
    (largest + 1,) with the new number of each old one, -1 where it doesn't appear.
    """
    size = int(sequence.max(initial=-1)) + 1
    order = sequence[newly_appearing(sequence, np.zeros(size, np.bool_))].astype(np.int64)
    renumbered = np.full(size, -1, np.int64)
    renumbered[order] = np.arange(len(order))
    return order, renumbered


def newly_appearing(sequence: Ints, is_in: Bools) -> Int64s:
    """Where in a sequence numbers that are not yet in appear first, in order.

    `is_in` has room for all numbers, and then says of these, too, that they are in.
    """
    first = np.empty(len(is_in), np.int64)
    found = [np.zeros(0, np.int64)]
    for begin in range(0, len(sequence), _CHUNK):
        chunk = sequence[begin : begin + _CHUNK]
        places = np.flatnonzero(~is_in.take(chunk))  # most are known after a while
        new = chunk[places]
        first[new[::-1]] = places[::-1]
        found.append(begin + places[first.take(new) == places])
        is_in[new] = True
    return np.concatenate(found)
