"""Reading location records, with the lines in them, into columns: part of `fields`' step of `decode`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pprof_merge.codec.fields import (
    IrregularLayout,
    Pairs,
    RecordKind,
    Varints,
    concatenated,
    offsets_of_chunks,
    read_chunks,
    scatter,
)
from pprof_merge.codec.records import EncodedRecords
from pprof_merge.codec.strict_reader import LINE, LOCATION, StrictReader, WireType
from pprof_merge.codec.varint import MAX_BYTES
from pprof_merge.columns.ragged import offsets_of, spans
from pprof_merge.profile import Int64s

_LINE_TAG = 4 << 3 | WireType.LENGTH

# The most bytes of a line, its tag and length included.
_MAX_LINE_BYTES = 3 + 3 * (1 + MAX_BYTES)


class LocationColumns(NamedTuple):
    """The fields of n locations: `scalars` (n, 5), `lines` (n_lines, 3), and the lines' offsets (n + 1).

    Column i is field i + 1 of the message Location or Line.
    """

    scalars: Int64s
    lines: Int64s
    line_offsets: Int64s


def read_locations(table: EncodedRecords, reader: StrictReader) -> LocationColumns:
    """Return the columns of location records. Raises MalformedProfile and LimitExceeded."""
    max_bytes = _MAX_LINE_BYTES * (reader.limits.nested_messages + len(LOCATION.scalars))
    chunks: list[LocationColumns] = []
    n_lines = 0
    for chunk in read_chunks(table, RecordKind(LOCATION, "location", max_bytes), reader, _locations):
        n_lines += len(chunk.lines)
        reader.limits.check("lines", n_lines)
        chunks.append(chunk)
    return LocationColumns(
        concatenated([chunk.scalars for chunk in chunks]),
        concatenated([chunk.lines for chunk in chunks]),
        offsets_of_chunks([np.diff(chunk.line_offsets) for chunk in chunks]),
    )


def _locations(varints: Varints) -> LocationColumns:
    n_locations = len(varints.ends)
    pairs = Pairs.of(varints.values, varints.ends)
    heads = np.flatnonzero(pairs.tags == _LINE_TAG)
    records = pairs.records
    head_records = records.take(heads)
    # A head is the tag and length of a line; the pairs of the line follow it.
    body_starts, lengths = varints.starts[2 * heads + 2], pairs.values[heads]
    if ((lengths < 0) | (lengths > varints.byte_ends[head_records] - body_starts)).any():
        raise IrregularLayout
    body_ends = varints.index_at(body_starts + lengths)
    counts = (body_ends >> 1) - (heads + 1)
    if (body_ends & 1).any() or (heads[:-1] + counts[:-1] >= heads[1:]).any():
        raise IrregularLayout
    inside = spans(heads + 1, counts)
    lines = scatter(
        pairs.tags[inside],
        pairs.values[inside],
        np.repeat(np.arange(len(heads)), counts),
        len(heads),
        LINE,
    )
    is_outside = np.ones(len(pairs.tags), np.bool_)
    is_outside[heads] = False
    is_outside[inside] = False
    outside = np.flatnonzero(is_outside)
    scalars = scatter(pairs.tags[outside], pairs.values[outside], records[outside], n_locations, LOCATION)
    return LocationColumns(scalars, lines, offsets_of(np.bincount(head_records, minlength=n_locations)))
