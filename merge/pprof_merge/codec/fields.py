"""Reading the fields of many records of one kind into columns at once: the next step of `decode`.

Profilers write nothing but varints into these records: a field's tag, its value, the next tag, also in the
lines of a location. So a whole table is one array of varints, and a column is a selection from it. Records
in another layout are first rewritten by `StrictReader.normalize`, which refuses malformed ones; this module
only detects that the layout is not the usual one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from pprof_merge.codec.records import EncodedRecords
from pprof_merge.codec.strict_reader import MessageSchema, StrictReader, WireType
from pprof_merge.codec.varint import MAX_BYTES, decode_varints
from pprof_merge.columns.ragged import offsets_of
from pprof_merge.errors import MalformedProfile
from pprof_merge.profile import Int64s, Ints

Columns = TypeVar("Columns")
Column = TypeVar("Column", Int64s, Ints)

# How many bytes of records are read at once: enough for NumPy to be fast, and few enough that temporary
# arrays stay small whatever a profile holds.
_CHUNK_BYTES = 1 << 18

# Every tag in pprof's schema is a varint of one byte.
_N_TAGS = 128


class IrregularLayout(Exception):
    """The records are not in the layout that profilers write. They may be malformed, or merely unusual."""


class Varints:
    """The varints of n records: m values, and the byte positions where they start (m + 1).

    `ends` (n) is each record's end as an index of a varint, `byte_ends` (n) is its end in bytes.
    """

    def __init__(self, table: EncodedRecords) -> None:
        """Read the varints of a table. Raises IrregularLayout if it holds anything else."""
        try:
            self.values, self.starts = decode_varints(table.joined)
        except MalformedProfile:
            raise IrregularLayout from None
        # The index of the varint that starts at a byte; undefined for other bytes.
        self._indexes = np.empty(len(table.joined) + 1, np.int32)
        self._indexes[self.starts] = np.arange(len(self.starts), dtype=np.int32)
        self.byte_ends = np.cumsum(table.sizes)
        self.ends = self.index_at(self.byte_ends)

    def index_at(self, positions: Int64s) -> Int64s:
        """Return the index of the varint that starts at each byte position.

        Raises IrregularLayout if no varint starts at one of them.
        """
        indexes = self._indexes.take(positions).astype(np.int64)
        if (self.starts.take(indexes, mode="clip") != positions).any():
            raise IrregularLayout
        return indexes


class RecordKind(NamedTuple):
    """A kind of record: its schema, its name in errors, and the most bytes it has in the usual layout."""

    schema: MessageSchema
    name: str
    max_bytes: int


def read_scalars(table: EncodedRecords, schema: MessageSchema, name: str, reader: StrictReader) -> Int64s:
    """Return the fields of n records that have scalar fields only: (n, fields), 0 where a field is missing.

    Column i is field i + 1. Raises MalformedProfile and LimitExceeded.
    """
    kind = RecordKind(schema, name, len(schema.scalars) * (1 + MAX_BYTES))
    return concatenated(list(read_chunks(table, kind, reader, lambda varints: _scalars(varints, schema))))


def read_chunks(
    table: EncodedRecords, kind: RecordKind, reader: StrictReader, columns: Callable[[Varints], Columns]
) -> Iterator[Columns]:
    """Yield what `columns` makes of the varints of each chunk of records. There is at least one chunk.

    Raises MalformedProfile and LimitExceeded.
    """
    offsets = offsets_of(table.sizes)
    begin, end = 0, -1
    while end < len(table):
        end = int(np.searchsorted(offsets, offsets[begin] + _CHUNK_BYTES, side="right")) - 1
        end = min(max(end, begin + 1), len(table))
        chunk = EncodedRecords(table.joined[offsets[begin] : offsets[end]], table.sizes[begin:end])
        try:
            yield columns(_varints(chunk, kind))
        except IrregularLayout:
            normalized = [
                reader.normalize(body, kind.schema, f"{kind.name} {begin + i}")
                for i, body in enumerate(chunk.each())
            ]
            yield columns(_varints(EncodedRecords.of(normalized), kind))
        begin = end


def _varints(table: EncodedRecords, kind: RecordKind) -> Varints:
    if int(table.sizes.max(initial=0)) > kind.max_bytes:
        raise IrregularLayout
    return Varints(table)


class Pairs(NamedTuple):
    """Varints in pairs of tag and value; record i has the pairs from offsets[i] to offsets[i + 1]."""

    tags: Int64s
    values: Int64s
    offsets: Int64s

    @classmethod
    def of(cls, values: Int64s, ends: Int64s) -> Pairs:
        """Return the pairs of records whose varints end at `ends`.

        Raises IrregularLayout if a record has an odd number of varints.
        """
        if (ends & 1).any():
            raise IrregularLayout
        return cls(values[0::2], values[1::2], np.concatenate((_ZERO, ends >> 1)))

    @property
    def records(self) -> Int64s:
        """The record of each pair."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


def _scalars(varints: Varints, schema: MessageSchema) -> Int64s:
    pairs = Pairs.of(varints.values, varints.ends)
    return scatter(pairs.tags, pairs.values, pairs.records, len(varints.ends), schema)


def scatter(tags: Int64s, values: Int64s, rows: Int64s, n_rows: int, schema: MessageSchema) -> Int64s:
    """Return a table (n_rows, last field) with each value in its row and in the column of its field.

    Missing fields are 0. Raises IrregularLayout if a tag is not that of a scalar field of the schema.
    """
    n_columns = schema.scalars[-1]
    column_of = np.full(_N_TAGS, -1, np.int64)
    for number in schema.scalars:
        column_of[number << 3 | WireType.VARINT] = number - 1
    column = column_of.take(tags, mode="clip")
    if (column < 0).any():
        raise IrregularLayout
    columns = np.zeros(n_rows * n_columns, np.int64)
    columns[rows * n_columns + column] = values  # if a field is given twice, the last value counts
    return columns.reshape(n_rows, n_columns)


def concatenated(chunks: Sequence[Column]) -> Column:
    """Return the chunks of a column as one array."""
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)


def offsets_of_chunks(counts: Sequence[Int64s]) -> Int64s:
    """Return the offsets of rows whose lengths are given in chunks."""
    return offsets_of(concatenated(counts))


_ZERO = np.zeros(1, np.int64)
