"""Varints in rows and columns, with gaps: how `encode` writes many small messages at once.

A message of nothing but varints, tags and lengths among them, is a row; all messages of a kind have the
same columns, and where one lacks a field, its cells are empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pprof_merge.codec.strict_reader import WireType
from pprof_merge.codec.varint import encode_codes, parts_of, varint_sizes
from pprof_merge.profile import Bools, Int64s, Ints, UInt32s, UInt64s

# So many rows are encoded at once, which bounds what it takes besides the result.
_CHUNK_ROWS = 1 << 13


class _Column(NamedTuple):
    codes: UInt32s | int
    is_there: Bools


class MessageRows:
    """Rows of varints, each a code or several (see `varint`); columns are added from left to right."""

    def __init__(self, n_rows: int) -> None:
        self._n_rows = n_rows
        self._columns: list[_Column] = []

    def add(self, values: UInt64s, is_there: Bools) -> None:
        """Values, one a row."""
        for codes, is_part_there in parts_of(values):
            self._add(codes, is_part_there & is_there)

    def number(self, field: int, values: UInt64s, is_there: Bools) -> None:
        """A scalar field: tag and value."""
        if is_there.any():
            self._add(field << 3 | WireType.VARINT, is_there)
            self.add(values, is_there)

    def message(self, field: int, sizes: Int64s, is_there: Bools) -> None:
        """What stands before a message or a packed run: tag and length."""
        self._add(field << 3 | WireType.LENGTH, is_there)
        self.add(unsigned(sizes), is_there)

    def codes(self) -> UInt32s:
        """All of them, row by row, without the gaps."""
        return self._chunk(0, self._n_rows)

    def counts(self) -> Int64s:
        """How many codes each row has."""
        counts = np.zeros(self._n_rows, np.int64)
        for column in self._columns:
            counts += column.is_there
        return counts

    def encode(self) -> bytes:
        """All rows, as bytes."""
        starts = range(0, self._n_rows, _CHUNK_ROWS)
        return b"".join(encode_codes(self._chunk(start, start + _CHUNK_ROWS)) for start in starts)

    def _add(self, codes: UInt32s | int, is_there: Bools) -> None:
        if is_there.any():
            self._columns.append(_Column(codes, is_there))

    def _chunk(self, start: int, end: int) -> UInt32s:
        n_rows = min(end, self._n_rows) - start
        codes = np.empty((n_rows, len(self._columns)), np.uint32)
        is_there = np.empty(codes.shape, np.bool_)
        for i, column in enumerate(self._columns):
            codes[:, i] = column.codes if isinstance(column.codes, int) else column.codes[start:end]
            is_there[:, i] = column.is_there[start:end]
        return np.compress(is_there.ravel(), codes.ravel())


def unsigned(values: Ints | UInt64s) -> UInt64s:
    """As protobuf has it: a negative number as its two's complement in 64 bits."""
    return values.astype(np.uint64, copy=False)


def sum_of_sizes(columns: Sequence[UInt64s]) -> Int64s:
    """The bytes of scalar fields, a column each, with their tags; a 0 is left out. (Numbers are below 16.)"""
    sizes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        is_there = column != 0
        if is_there.any():
            sizes += np.where(is_there, varint_sizes(column) + np.uint8(1), np.uint8(0))
    return sizes


def message_sizes(sizes: Int64s) -> Int64s:
    """The bytes of a message or a packed run of some size, tag and length included."""
    return sizes + varint_sizes(unsigned(sizes)) + 1


def scalar_messages(field: int, columns: Sequence[UInt64s]) -> MessageRows:
    """Messages whose fields 1, 2, … are scalars, a column each, left out where 0."""
    n_rows = len(columns[0])
    cells = MessageRows(n_rows)
    cells.message(field, sum_of_sizes(columns), np.ones(n_rows, np.bool_))
    for number, column in enumerate(columns, 1):
        cells.number(number, column, column != 0)
    return cells
