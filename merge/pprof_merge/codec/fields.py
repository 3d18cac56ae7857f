"""The fields of many records of one kind, read at once into columns: the second step of `decode`.

Profilers write nothing but varints into these records: a field's tag, its value, the next tag, also
within the lines of a location. So a whole table is one array of varints, and a column one selection of
it. Records laid out otherwise are first brought to that layout by `wire.StrictReader`, which also refuses
the malformed ones; this module only ever tells that the layout isn't the usual one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from pprof_merge.codec.records import Bodies
from pprof_merge.codec.strict_reader import Message, StrictReader, WireType
from pprof_merge.codec.varint import MAX_BYTES, decode_varints
from pprof_merge.columns.ragged import offsets_of
from pprof_merge.errors import MalformedProfile
from pprof_merge.profile import Int64s, Ints

Columns = TypeVar("Columns")
Column = TypeVar("Column", Int64s, Ints)

# So many bytes of records are read at once: enough for NumPy to earn its keep, and few enough that what
# is made of them on the way stays small whatever a profile holds.
_CHUNK_BYTES = 1 << 18

_TAGS = 128  # a field with a longer tag isn't one of pprof's


class IrregularLayout(Exception):
    """The records are not laid out as profilers do it; whether they are malformed is open."""


class Varints:
    """All varints of some records: values, first bytes (one more, the end of all), and each record's end
    among them and in bytes.
    """

    def __init__(self, table: Bodies) -> None:
        """Raises IrregularLayout where there is more in the records than varints."""
        try:
            self.values, self.starts = decode_varints(table.joined)
        except MalformedProfile:
            raise IrregularLayout from None
        # By the byte that a varint starts at; of other bytes it says nothing.
        self._numbers = np.empty(len(table.joined) + 1, np.int32)
        self._numbers[self.starts] = np.arange(len(self.starts), dtype=np.int32)
        self.byte_ends = np.cumsum(table.sizes)
        self.ends = self.at(self.byte_ends)

    def at(self, positions: Int64s) -> Int64s:
        """Which varint starts at each byte position. Raises IrregularLayout where none does."""
        numbers = self._numbers.take(positions).astype(np.int64)
        if (self.starts.take(numbers, mode="clip") != positions).any():
            raise IrregularLayout
        return numbers


class Kind(NamedTuple):
    """Records of one kind: how they are laid out, what they are called, and how long a usual one can be."""

    message: Message
    name: str
    longest: int


def read_scalars(table: Bodies, message: Message, name: str, reader: StrictReader) -> Int64s:
    """(n, fields) of n records that have scalar fields only; 0 where a field is missing.

    Column i is field i + 1. Raises MalformedProfile and LimitExceeded.
    """
    kind = Kind(message, name, len(message.scalars) * (1 + MAX_BYTES))
    return rows_joined(list(read(table, kind, reader, lambda varints: _scalars(varints, message))))


def read(
    table: Bodies, kind: Kind, reader: StrictReader, columns: Callable[[Varints], Columns]
) -> Iterator[Columns]:
    """The columns of all records, in chunks, of which there is at least one.

    Raises MalformedProfile and LimitExceeded.
    """
    offsets = offsets_of(table.sizes)
    begin, end = 0, -1
    while end < len(table):
        end = int(np.searchsorted(offsets, offsets[begin] + _CHUNK_BYTES, side="right")) - 1
        end = min(max(end, begin + 1), len(table))
        chunk = Bodies(table.joined[offsets[begin] : offsets[end]], table.sizes[begin:end])
        try:
            yield columns(_varints(chunk, kind))
        except IrregularLayout:
            regular = [
                reader.regular(body, kind.message, f"{kind.name} {begin + i}")
                for i, body in enumerate(chunk.each())
            ]
            yield columns(_varints(Bodies.of(regular), kind))
        begin = end


def _varints(table: Bodies, kind: Kind) -> Varints:
    if int(table.sizes.max(initial=0)) > kind.longest:
        raise IrregularLayout
    return Varints(table)


class Pairs(NamedTuple):
    """Varints taken two by two, as tag and value; record i has those from offsets[i] to offsets[i + 1]."""

    tags: Int64s
    values: Int64s
    offsets: Int64s

    @classmethod
    def of(cls, values: Int64s, ends: Int64s) -> Pairs:
        """Of the varints of some records, which end where `ends` says."""
        if (ends & 1).any():
            raise IrregularLayout
        return cls(values[0::2], values[1::2], np.concatenate((_ZERO, ends >> 1)))

    @property
    def records(self) -> Int64s:
        """The record of each pair."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


def _scalars(varints: Varints, message: Message) -> Int64s:
    pairs = Pairs.of(varints.values, varints.ends)
    return scatter(pairs.tags, pairs.values, pairs.records, len(varints.ends), message)


def scatter(tags: Int64s, values: Int64s, rows: Int64s, n_rows: int, message: Message) -> Int64s:
    """(n_rows, last field) of the pairs' values; all must be scalar fields of the message."""
    n_columns = message.scalars[-1]
    column_of = np.full(_TAGS, -1, np.int64)
    for number in message.scalars:
        column_of[number << 3 | WireType.VARINT] = number - 1
    column = column_of.take(tags, mode="clip")
    if (column < 0).any():
        raise IrregularLayout
    columns = np.zeros(n_rows * n_columns, np.int64)
    columns[rows * n_columns + column] = values  # where a field is given twice, the last counts
    return columns.reshape(n_rows, n_columns)


def rows_joined(chunks: Sequence[Column]) -> Column:
    """The chunks of a column, as one."""
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)


def offsets_joined(counts: Sequence[Int64s]) -> Int64s:
    """The offsets of rows whose lengths come in chunks."""
    return offsets_of(rows_joined(counts))


_ZERO = np.zeros(1, np.int64)
