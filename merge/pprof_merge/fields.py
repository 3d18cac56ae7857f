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

from pprof_merge.errors import MalformedProfile
from pprof_merge.profile import Int64s, Ints
from pprof_merge.ragged import offsets_of
from pprof_merge.records import Bodies
from pprof_merge.varint import MAX_BYTES, decode_varints
from pprof_merge.wire import Message, StrictReader, WireType

Columns = TypeVar("Columns")
Column = TypeVar("Column", Int64s, Ints)

# So many bytes of records are read at once: enough for NumPy to earn its keep, and few enough that what
# is made of them on the way stays small whatever a profile holds.
_CHUNK_BYTES = 1 << 18

_TAGS = 128  # a field with a longer tag isn't one of pprof's


class IrregularLayout(Exception):
    """The records are not laid out as profilers do it; whether they are malformed is open."""


class Varints(NamedTuple):
    """All varints of some records: values, first bytes (one more, the end of all), and each record's end
    among them and in bytes.
    """

    values: Int64s
    starts: Int64s
    ends: Int64s
    byte_ends: Int64s

    def at(self, positions: Int64s, likely: Int64s) -> Int64s:
        """Which varint starts at each byte position; the likely ones are looked at first."""
        found = np.minimum(likely, len(self.starts) - 1)
        wrong = np.flatnonzero(self.starts[found] != positions)
        found[wrong] = _index_of(self.starts, positions[wrong])
        return found


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
    bodies, sizes = table
    byte_ends = np.cumsum(sizes)
    begin = 0
    while begin < len(bodies) or not begin:
        before = int(byte_ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(byte_ends, before + _CHUNK_BYTES, side="right")))
        chunk = Bodies(bodies[begin:end], sizes[begin:end])
        try:
            yield columns(_varints(chunk, kind))
        except IrregularLayout:
            regular = [
                reader.regular(body, kind.message, f"{kind.name} {begin + i}")
                for i, body in enumerate(chunk.bodies)
            ]
            yield columns(_varints(Bodies.of(regular), kind))
        begin = end


def _varints(table: Bodies, kind: Kind) -> Varints:
    if int(table.sizes.max(initial=0)) > kind.longest:
        raise IrregularLayout
    try:
        values, starts = decode_varints(table.bodies)
    except MalformedProfile:
        raise IrregularLayout from None
    byte_ends = np.cumsum(table.sizes)
    return Varints(values, starts, _index_of(starts, byte_ends), byte_ends)


def _index_of(starts: Int64s, positions: Int64s) -> Int64s:
    index = np.searchsorted(starts, positions)
    if (starts.take(index, mode="clip") != positions).any():
        raise IrregularLayout
    return index


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
