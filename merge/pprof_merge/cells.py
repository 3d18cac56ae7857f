"""Varints in rows and columns, with gaps: how `encode` writes many small messages at once.

A message of nothing but varints, tags and lengths among them, is a row; all messages of a kind have the
same columns, and where one lacks a field, its cells are empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pprof_merge.profile import Bools, Int64s, Numbers, UInt64s
from pprof_merge.varint import encode_varints, varint_sizes
from pprof_merge.wire import WireType

# So many rows are encoded at once, which bounds what it takes besides the result.
_CHUNK_ROWS = 1 << 15


class _Column(NamedTuple):
    values: UInt64s | int
    is_there: Bools


class Cells:
    """Rows of varints; columns are added from left to right."""

    def __init__(self, n_rows: int) -> None:
        self._n_rows = n_rows
        self._columns: list[_Column] = []

    def add(self, values: UInt64s | int, is_there: Bools) -> None:
        """A column, the same value in all rows or one each."""
        if is_there.any():
            self._columns.append(_Column(values, is_there))

    def number(self, field: int, values: UInt64s, is_there: Bools) -> None:
        """The two columns of a scalar field."""
        self.add(field << 3 | WireType.VARINT, is_there)
        self.add(values, is_there)

    def message(self, field: int, sizes: UInt64s, is_there: Bools) -> None:
        """The two columns before a message or a packed run: tag and length."""
        self.add(field << 3 | WireType.LENGTH, is_there)
        self.add(sizes, is_there)

    def varints(self) -> UInt64s:
        """All of them, row by row, without the gaps."""
        return self._chunk(0, self._n_rows)

    def counts(self) -> Int64s:
        """How many varints each row has."""
        counts = np.zeros(self._n_rows, np.int64)
        for column in self._columns:
            counts += column.is_there
        return counts

    def encode(self) -> bytes:
        """All rows, as bytes."""
        starts = range(0, self._n_rows, _CHUNK_ROWS)
        return b"".join(encode_varints(self._chunk(start, start + _CHUNK_ROWS)) for start in starts)

    def _chunk(self, start: int, end: int) -> UInt64s:
        n_rows = min(end, self._n_rows) - start
        values = np.empty((n_rows, len(self._columns)), np.uint64)
        is_there = np.empty(values.shape, np.bool_)
        for i, column in enumerate(self._columns):
            values[:, i] = column.values if isinstance(column.values, int) else column.values[start:end]
            is_there[:, i] = column.is_there[start:end]
        return np.compress(is_there.ravel(), values.ravel())


def unsigned(values: Numbers) -> UInt64s:
    """As protobuf has it: a negative number as its two's complement in 64 bits."""
    return values.astype(np.uint64, copy=False)


def sum_of_sizes(columns: Sequence[UInt64s]) -> Int64s:
    """The bytes of scalar fields, a column each, with their tags; a 0 is left out. (Numbers are below 16.)"""
    sizes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        sizes += np.where(column == 0, 0, varint_sizes(column) + np.uint8(1))
    return sizes


def message_sizes(sizes: Int64s) -> Int64s:
    """The bytes of a message or a packed run of some size, tag and length included."""
    return sizes + varint_sizes(unsigned(sizes)) + 1


def scalar_messages(field: int, columns: Sequence[UInt64s]) -> Cells:
    """Messages whose fields 1, 2, … are scalars, a column each, left out where 0."""
    n_rows = len(columns[0])
    cells = Cells(n_rows)
    cells.message(field, unsigned(sum_of_sizes(columns)), np.ones(n_rows, np.bool_))
    for number, column in enumerate(columns, 1):
        cells.number(number, column, column != 0)
    return cells
