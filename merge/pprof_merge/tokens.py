"""Rows of varints yet to be written: the parts that `encode` puts messages together from.

A message of nothing but varints, tags and lengths among them, is a row of numbers; all messages of a
kind are built side by side, and all numbers of a profile turn into bytes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pprof_merge.profile import Bools, Int64s, UInt64s
from pprof_merge.ragged import offsets_of, spans
from pprof_merge.varint import encode_varints, varint_sizes
from pprof_merge.wire import WireType

# google/pprof writes longer runs of a repeated number packed, and shorter ones as fields of their own.
LONGEST_UNPACKED = 2


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """Ragged rows: the varints of row i are values[offsets[i]:offsets[i + 1]]."""

    values: UInt64s
    offsets: Int64s

    @property
    def counts(self) -> Int64s:
        """How many varints each row has."""
        return np.diff(self.offsets)

    def sizes(self) -> Int64s:
        """How many bytes each row takes."""
        return np.diff(offsets_of(varint_sizes(self.values))[self.offsets])

    def where(self, mask: Bools) -> Tokens:
        """The same number of rows, those without the mask's mark emptied."""
        counts = self.counts
        return Tokens(self.values[np.repeat(mask, counts)], offsets_of(np.where(mask, counts, 0)))

    def grouped(self, offsets: Int64s) -> Tokens:
        """Fewer rows: row i is the rows offsets[i] to offsets[i + 1] of these, one after another."""
        return Tokens(self.values, self.offsets[offsets])

    def encode(self) -> bytes:
        """All rows, as bytes."""
        return encode_varints(self.values)


def rows_of(*columns: UInt64s) -> Tokens:
    """Rows of as many varints as there are columns."""
    values = np.stack(columns, axis=1)
    return Tokens(values.ravel(), np.arange(len(values) + 1) * len(columns))


def joined(*parts: Tokens) -> Tokens:
    """Row by row, the parts one after another."""
    counts = [part.counts for part in parts]
    offsets = offsets_of(np.sum(counts, axis=0))
    values = np.empty(offsets[-1], np.uint64)
    cursor = offsets[:-1]
    for part, count in zip(parts, counts, strict=True):
        values[spans(cursor, count)] = part.values
        cursor = cursor + count
    return Tokens(values, offsets)


def number_field(number: int, values: Int64s | UInt64s) -> Tokens:
    """A scalar field in every row where it isn't 0."""
    unsigned = values.view(np.uint64)
    return rows_of(_tags(number, WireType.VARINT, len(values)), unsigned).where(unsigned != 0)


def repeated_field(number: int, runs: Tokens) -> Tokens:
    """A repeated number."""
    counts = runs.counts
    packed = counts > LONGEST_UNPACKED
    single = rows_of(_tags(number, WireType.VARINT, len(runs.values)), runs.values).grouped(runs.offsets)
    return joined(message_field(number, runs).where(packed), single.where(~packed))


def message_field(number: int, body: Tokens) -> Tokens:
    """A message, or a packed run: tag, length and body in every row."""
    sizes = body.sizes().view(np.uint64)
    return joined(rows_of(_tags(number, WireType.LENGTH, len(sizes)), sizes), body)


def scalar_message(columns: Sequence[Int64s | UInt64s]) -> Tokens:
    """A message whose fields 1, 2, … are scalars, a column each."""
    return joined(*(number_field(number, column) for number, column in enumerate(columns, 1)))


def _tags(number: int, wire_type: WireType, rows: int) -> UInt64s:
    return np.full(rows, number << 3 | wire_type, np.uint64)
