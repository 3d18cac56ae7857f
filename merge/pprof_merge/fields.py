"""The fields of many records of one kind, read at once into columns: the second step of `decode`.

Profilers write nothing but varints into these records: a field's tag, its value, the next tag, also
within the lines of a location. So a whole table is one array of varints, and a column one selection of
it. Records laid out otherwise are first brought to that layout by `wire.StrictReader`, which also refuses
the malformed ones; this module only ever tells that the layout isn't the usual one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from pprof_merge.errors import MalformedProfile
from pprof_merge.profile import Int64s
from pprof_merge.ragged import offsets_of, spans
from pprof_merge.varint import decode_varints
from pprof_merge.wire import LABEL, LINE, LOCATION, SAMPLE, Message, StrictReader, WireType

Columns = TypeVar("Columns")

_LINE_TAG = 4 << 3 | WireType.LENGTH
_NONE = np.zeros(0, np.int64)
_ZERO = np.zeros(1, np.int64)


class _IrregularLayout(Exception):
    """The records are not laid out as profilers do it; whether they are malformed is open."""


class Varints(NamedTuple):
    """All varints of some records: value and first byte of each, and, a record, the ends in both counts."""

    values: Int64s
    starts: Int64s
    byte_ends: Int64s
    ends: Int64s


class LocationColumns(NamedTuple):
    """Scalar fields 1 to 5 of n locations, 1 to 3 of their lines, and the lines' offsets (n + 1)."""

    scalars: Int64s
    lines: Int64s
    line_offsets: Int64s


class SampleColumns(NamedTuple):
    """Location ids, values and label fields 1 to 4 of n samples, each with its offsets (n + 1)."""

    location_ids: Int64s
    location_offsets: Int64s
    values: Int64s
    value_offsets: Int64s
    labels: Int64s
    label_offsets: Int64s


def read_scalars(bodies: Sequence[bytes], message: Message, name: str, reader: StrictReader) -> Int64s:
    """(n, fields) of n records that have scalar fields only; 0 where a field is missing.

    Column i is field i + 1. Raises MalformedProfile and LimitExceeded, as do the two below.
    """
    return _read(bodies, message, name, reader, lambda varints: _scalars(varints, message))


def read_locations(bodies: Sequence[bytes], reader: StrictReader) -> LocationColumns:
    """The columns of location records."""
    return _read(bodies, LOCATION, "location", reader, _locations)


def read_samples(bodies: Sequence[bytes], reader: StrictReader) -> SampleColumns:
    """The columns of sample records."""
    # Laid out as usual, a sample is its stack, its values and its labels.
    most_fields = 2 + reader.limits.nested_messages
    return _read(bodies, SAMPLE, "sample", reader, lambda varints: _samples(varints, most_fields))


def _read(
    bodies: Sequence[bytes],
    message: Message,
    name: str,
    reader: StrictReader,
    columns: Callable[[Varints], Columns],
) -> Columns:
    try:
        return columns(_varints(bodies))
    except _IrregularLayout:
        laid_out = [reader.regular(body, message, f"{name} {i}") for i, body in enumerate(bodies)]
        return columns(_varints(laid_out))


def _varints(bodies: Sequence[bytes]) -> Varints:
    buffer = np.frombuffer(b"".join(bodies), np.uint8)
    try:
        values, starts = decode_varints(buffer)
    except MalformedProfile:
        raise _IrregularLayout from None
    starts = np.append(starts, buffer.size)
    byte_ends = np.cumsum(np.fromiter(map(len, bodies), np.int64, len(bodies)))
    return Varints(values, starts, byte_ends, _index_at(starts, byte_ends))


def _index_at(starts: Int64s, positions: Int64s) -> Int64s:
    """The index of the varint that starts at each byte position."""
    index = np.searchsorted(starts, positions)
    if (starts[index] != positions).any():
        raise _IrregularLayout
    return index


class _Pairs(NamedTuple):
    """Varints taken two by two, as tag and value; `record` is the row that each pair belongs to."""

    tags: Int64s
    values: Int64s
    starts: Int64s
    record: Int64s
    byte_ends: Int64s


def _pairs(varints: Varints) -> _Pairs:
    counts = np.diff(varints.ends, prepend=0)
    if (counts & 1).any():
        raise _IrregularLayout
    record = np.repeat(np.arange(len(counts)), counts >> 1)
    return _Pairs(
        varints.values[0::2], varints.values[1::2], varints.starts[0:-1:2], record, varints.byte_ends
    )


def _scalars(varints: Varints, message: Message) -> Int64s:
    pairs = _pairs(varints)
    return _scatter(pairs.tags, pairs.values, pairs.record, len(pairs.byte_ends), message)


def _scatter(tags: Int64s, values: Int64s, rows: Int64s, n_rows: int, message: Message) -> Int64s:
    """(n_rows, last field) of the pairs' values; all must be scalar fields of the message."""
    number = tags >> 3
    is_scalar = np.zeros(message.scalars[-1] + 2, np.bool_)  # one more, for all numbers above
    is_scalar[list(message.scalars)] = True
    if ((tags & 7) != WireType.VARINT).any() or not is_scalar.take(number, mode="clip").all():
        raise _IrregularLayout
    columns = np.zeros((n_rows, message.scalars[-1]), np.int64)
    columns[rows, number - 1] = values  # where a field is given twice, the last counts
    return columns


def _locations(varints: Varints) -> LocationColumns:
    tags, values, starts, record, byte_ends = _pairs(varints)
    is_head = tags == _LINE_TAG
    heads = np.flatnonzero(is_head)
    body_starts = np.append(starts, varints.starts[-1])[heads + 1]
    room = byte_ends[record[heads]] - body_starts
    if ((values[heads] < 0) | (values[heads] > room)).any():
        raise _IrregularLayout
    body_ends = body_starts + values[heads]
    if (body_ends[:-1] > starts[heads[1:]]).any():
        raise _IrregularLayout
    # A pair belongs to the last line that begins before it, if it lies within that line's bytes.
    line = np.cumsum(is_head) - 1
    inside = (line >= 0) & ~is_head
    inside[inside] = starts[inside] < body_ends[line[inside]]
    if (np.isin(body_ends, varints.starts[0::2], invert=True)).any():
        raise _IrregularLayout
    outside = ~inside & ~is_head
    return LocationColumns(
        _scatter(tags[outside], values[outside], record[outside], len(byte_ends), LOCATION),
        _scatter(tags[inside], values[inside], line[inside], len(heads), LINE),
        offsets_of(np.bincount(record[heads], minlength=len(byte_ends))),
    )


class _Runs:
    """Runs of varints that belong to samples, found one a sample and round."""

    def __init__(self) -> None:
        self._rounds: list[tuple[Int64s, Int64s, Int64s]] = []

    def add(self, sample: Int64s, start: Int64s, end: Int64s) -> None:
        if sample.size:
            self._rounds.append((sample, start, end - start))

    def collect(self) -> tuple[Int64s, Int64s, Int64s]:
        """Sample, first varint and number of varints of every run, ordered by sample, then round."""
        if not self._rounds:
            return _NONE, _NONE, _NONE
        if len(self._rounds) == 1:
            return self._rounds[0]
        sample, start, count = (np.concatenate(column) for column in zip(*self._rounds, strict=True))
        order = np.argsort(sample, kind="stable")
        return sample[order], start[order], count[order]


def _samples(varints: Varints, most_fields: int) -> SampleColumns:
    """One field of every sample a round, until all are read."""
    n_samples = len(varints.ends)
    locations, values, labels = _Runs(), _Runs(), _Runs()
    sample = np.arange(n_samples)
    end = varints.ends
    position = np.concatenate((_ZERO, end[:-1]))
    for _ in range(most_fields + 1):
        unread = position < end
        if not unread.all():
            sample, position, end = sample[unread], position[unread], end[unread]
        if not sample.size:
            break
        tags = varints.values[position]
        number, wire_type = tags >> 3, tags & 7
        if ((number < 1) | (number > 3) | ((number == 3) & (wire_type != WireType.LENGTH))).any():
            raise _IrregularLayout
        start, position = _value_spans(varints, wire_type, position, end)
        for field, runs in enumerate((locations, values, labels), 1):
            mine = np.flatnonzero(number == field)
            runs.add(sample[mine], start[mine], position[mine])
    else:
        raise _IrregularLayout
    return SampleColumns(
        *_flatten(varints, locations, n_samples), *_flatten(varints, values, n_samples),
        *_labels(varints, labels, n_samples),
    )  # fmt: skip


def _value_spans(varints: Varints, wire_type: Int64s, position: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """The first varint of the value of the field at each position, and the first one after it."""
    if ((wire_type != WireType.VARINT) & (wire_type != WireType.LENGTH)).any() or (position + 1 >= end).any():
        raise _IrregularLayout
    long = np.flatnonzero(wire_type == WireType.LENGTH)
    start, stop = position + 1, position + 2
    start[long] += 1
    body_starts = varints.starts[start[long]]
    lengths = varints.values[position[long] + 1]
    if ((lengths < 0) | (lengths > varints.starts[end[long]] - body_starts)).any():
        raise _IrregularLayout
    stop[long] = _index_at(varints.starts, body_starts + lengths)
    return start, stop


def _flatten(varints: Varints, runs: _Runs, n_samples: int) -> tuple[Int64s, Int64s]:
    """The varints of all runs, those of a sample together, and their offsets (n_samples + 1)."""
    sample, start, count = runs.collect()
    counts = np.zeros(n_samples, np.int64)
    np.add.at(counts, sample, count)
    return varints.values[spans(start, count)], offsets_of(counts)


def _labels(varints: Varints, runs: _Runs, n_samples: int) -> tuple[Int64s, Int64s]:
    """The fields of all labels (n_labels, 4), a sample's together, and their offsets (n_samples + 1)."""
    sample, start, count = runs.collect()
    if (count & 1).any():
        raise _IrregularLayout
    tokens = varints.values[spans(start, count)]
    label = np.repeat(np.arange(len(sample)), count >> 1)
    fields = _scatter(tokens[0::2], tokens[1::2], label, len(sample), LABEL)
    return fields, offsets_of(np.bincount(sample, minlength=n_samples))
