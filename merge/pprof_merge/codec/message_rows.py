"""A table of varints from which `encode` writes many small messages at once.

A message that consists of varints only (tags, lengths and numbers) is a row. All messages of a kind have the
same columns; where a message lacks a field, its cells are empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pprof_merge.codec.strict_reader import WireType
from pprof_merge.codec.varint import code_parts, encode_codes, varint_sizes
from pprof_merge.profile import Bools, Int64s, Ints, UInt32s, UInt64s

# How many rows are encoded at once, which bounds the memory besides the result.
_CHUNK_ROWS = 1 << 13


class _Column(NamedTuple):
    codes: UInt32s | int
    is_present: Bools


class MessageRows:
    """Rows of varints as codes (see `varint`). Columns are added from left to right.

    In each method `is_present` (n_rows) says which rows have the cells; the others leave them empty.
    """

    def __init__(self, n_rows: int) -> None:
        self._n_rows = n_rows
        self._columns: list[_Column] = []

    def add(self, values: UInt64s, is_present: Bools) -> None:
        """Add a value (n_rows) to each row."""
        for codes, is_part_present in code_parts(values):
            self._add(codes, is_part_present & is_present)

    def number(self, field: int, values: UInt64s, is_present: Bools) -> None:
        """Add a scalar field to each row: its tag and a value (n_rows)."""
        if is_present.any():
            self._add(field << 3 | WireType.VARINT, is_present)
            self.add(values, is_present)

    def message(self, field: int, sizes: Int64s, is_present: Bools) -> None:
        """Add the start of a message or of packed numbers to each row: the tag, and the length in bytes."""
        self._add(field << 3 | WireType.LENGTH, is_present)
        self.add(unsigned(sizes), is_present)

    def codes(self) -> UInt32s:
        """Return all codes, row by row, without the empty cells."""
        return self._chunk(0, self._n_rows)

    def counts(self) -> Int64s:
        """Return how many codes each row has (n_rows)."""
        counts = np.zeros(self._n_rows, np.int64)
        for column in self._columns:
            counts += column.is_present
        return counts

    def encode(self) -> bytes:
        """Return the bytes of all rows."""
        starts = range(0, self._n_rows, _CHUNK_ROWS)
        return b"".join(encode_codes(self._chunk(start, start + _CHUNK_ROWS)) for start in starts)

    def _add(self, codes: UInt32s | int, is_present: Bools) -> None:
        if is_present.any():
            self._columns.append(_Column(codes, is_present))

    def _chunk(self, start: int, end: int) -> UInt32s:
        n_rows = min(end, self._n_rows) - start
        codes = np.empty((n_rows, len(self._columns)), np.uint32)
        is_present = np.empty(codes.shape, np.bool_)
        for i, column in enumerate(self._columns):
            codes[:, i] = column.codes if isinstance(column.codes, int) else column.codes[start:end]
            is_present[:, i] = column.is_present[start:end]
        return np.compress(is_present.ravel(), codes.ravel())


def unsigned(values: Ints | UInt64s) -> UInt64s:
    """Return the values as uint64; negative numbers become their two's complement, as in protobuf."""
    return values.astype(np.uint64, copy=False)


def scalar_sizes(columns: Sequence[UInt64s]) -> Int64s:
    """Return the bytes of each row's scalar fields, one a column, with their tags (n_rows).

    A value of 0 is left out. All field numbers are below 16, so that a tag takes one byte.
    """
    sizes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        is_present = column != 0
        if is_present.any():
            sizes += np.where(is_present, varint_sizes(column) + np.uint8(1), np.uint8(0))
    return sizes


def message_sizes(sizes: Int64s) -> Int64s:
    """Return the bytes of messages or packed numbers of these sizes, tags and lengths included."""
    return sizes + varint_sizes(unsigned(sizes)) + 1


def scalar_messages(field: int, columns: Sequence[UInt64s]) -> MessageRows:
    """Return messages whose fields 1, 2, … are scalars, one a column; values of 0 are left out."""
    n_rows = len(columns[0])
    rows = MessageRows(n_rows)
    rows.message(field, scalar_sizes(columns), np.ones(n_rows, np.bool_))
    for number, column in enumerate(columns, 1):
        rows.number(number, column, column != 0)
    return rows
