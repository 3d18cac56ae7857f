"""The fields of sample records, with their labels, read into columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pprof_merge.codec.fields import (
    IrregularLayout,
    Kind,
    Pairs,
    Varints,
    offsets_joined,
    read,
    rows_joined,
    scatter,
)
from pprof_merge.codec.records import Bodies
from pprof_merge.codec.strict_reader import LABEL, SAMPLE, StrictReader, WireType
from pprof_merge.codec.varint import MAX_BYTES
from pprof_merge.columns.ragged import spans
from pprof_merge.profile import Int64s, Ints

# The bytes of a label with all its fields, the tag and length before it included.
_LONGEST_LABEL = 3 + 4 * (1 + MAX_BYTES)

# What a varint of a sample is: most are locations.
_LOCATION, _FRAMING, _VALUE, _LABEL = range(4)

_KIND_OF_TAG = {
    1 << 3 | WireType.VARINT: _LOCATION,
    1 << 3 | WireType.LENGTH: _LOCATION,
    2 << 3 | WireType.VARINT: _VALUE,
    2 << 3 | WireType.LENGTH: _VALUE,
    3 << 3 | WireType.LENGTH: _LABEL,
}


class SampleColumns(NamedTuple):
    """Location ids, values and label fields 1 to 4 of n samples, each with its offsets (n + 1)."""

    location_ids: Ints
    location_offsets: Int64s
    values: Int64s
    value_offsets: Int64s
    labels: Int64s
    label_offsets: Int64s


class _Chunk(NamedTuple):
    """The same of some samples, with counts (n) for offsets."""

    location_ids: Ints
    location_counts: Int64s
    values: Int64s
    value_counts: Int64s
    labels: Int64s
    label_counts: Int64s


def read_samples(table: Bodies, n_types: int, reader: StrictReader) -> SampleColumns:
    """The columns of sample records. Raises MalformedProfile and LimitExceeded."""
    limits = reader.limits
    most_labels = limits.nested_messages
    longest = (limits.stack_depth + n_types) * (1 + MAX_BYTES) + most_labels * _LONGEST_LABEL
    # Laid out as usual, a sample is its stack (two fields if it has two frames), its values and its labels.
    most_fields = 2 + n_types + most_labels
    kind = Kind(SAMPLE, "sample", longest)
    chunks: list[_Chunk] = []
    n_labels = n_frames = 0
    for chunk in read(table, kind, reader, lambda varints: _Reading(varints).chunk(most_fields)):
        n_labels += len(chunk.labels)
        limits.check("labels", n_labels)
        n_frames += len(chunk.location_ids)
        limits.check("frames", n_frames)
        chunks.append(chunk)
    ids, id_counts, values, value_counts, labels, label_counts = zip(*chunks, strict=True)
    return SampleColumns(
        rows_joined(ids), offsets_joined(id_counts),
        rows_joined(values), offsets_joined(value_counts),
        rows_joined(labels), offsets_joined(label_counts),
    )  # fmt: skip


class _Reading:
    """Tells what each varint of some samples is: one field of every sample a round, until all are read."""

    def __init__(self, varints: Varints) -> None:
        self._varints = varints
        self._kinds = np.full(len(varints.values), _LOCATION, np.uint8)
        self._counts = np.zeros((4, len(varints.ends)), np.int64)
        # Runs of varints that are labels: sample, start, stop.
        self._labels: list[tuple[Int64s, Int64s, Int64s]] = []

    def chunk(self, most_fields: int) -> _Chunk:
        """The columns of all samples. Raises IrregularLayout."""
        sample, end = np.arange(len(self._varints.ends)), self._varints.ends
        position = np.concatenate((np.zeros(1, np.int64), end))[:-1]
        for _ in range(most_fields + 1):
            unread = np.flatnonzero(position < end)
            if not unread.size:
                break
            if len(unread) < len(position):
                sample, position, end = sample[unread], position[unread], end[unread]
            position = self._read_field(sample, position, end)
        else:
            raise IrregularLayout
        labels, label_counts = self._label_columns()
        return _Chunk(
            _narrow(self._varints.values[self._kinds == _LOCATION]), self._counts[_LOCATION],
            self._varints.values[self._kinds == _VALUE], self._counts[_VALUE],
            labels, label_counts,
        )  # fmt: skip

    def _read_field(self, sample: Int64s, position: Int64s, end: Int64s) -> Int64s:
        """Reads the field at each sample's position; returns the position after it."""
        if (position + 1 >= end).any():
            raise IrregularLayout
        self._kinds[position] = _FRAMING
        tags, known = self._varints.values[position], 0
        following = np.empty_like(position)
        for tag, kind in _KIND_OF_TAG.items():
            if known == len(tags):
                break
            mine = (tags == tag).nonzero()[0]
            if not mine.size:
                continue
            known += len(mine)
            if tag & 7 == WireType.VARINT:
                start = position[mine] + 1
                stop = start + 1
                self._kinds[start] = kind
            else:
                start, stop = _run(self._varints, position[mine] + 1, end[mine])
                self._kinds[start - 1] = _FRAMING
                if kind != _LOCATION:
                    self._kinds[spans(start, stop - start)] = kind
                if kind == _LABEL:
                    self._labels.append((sample[mine], start, stop))
            self._counts[kind][sample[mine]] += stop - start
            following[mine] = stop
        if known < len(tags):
            raise IrregularLayout
        return following

    def _label_columns(self) -> tuple[Int64s, Int64s]:
        """The fields of all labels (n_labels, 4), a sample's together, and the labels of each sample."""
        n_samples = len(self._varints.ends)
        if not self._labels:
            return np.zeros((0, LABEL.scalars[-1]), np.int64), np.zeros(n_samples, np.int64)
        sample, start, stop = (np.concatenate(column) for column in zip(*self._labels, strict=True))
        order = np.argsort(start)
        counts = (stop - start)[order]
        pairs = Pairs.of(self._varints.values[spans(start[order], counts)], np.cumsum(counts))
        fields = scatter(pairs.tags, pairs.values, pairs.records, len(order), LABEL)
        return fields, np.bincount(sample, minlength=n_samples)


def _narrow(ids: Int64s) -> Ints:
    """In half the room, where they fit: no column is longer than that of all frames."""
    fit = ids.min(initial=0) >= 0 and ids.max(initial=0) <= np.iinfo(np.int32).max
    return ids.astype(np.int32) if fit else ids


def _run(varints: Varints, position: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """The first varint of the run whose length stands at each position, and the first one after it."""
    start = position + 1
    body_starts, lengths = varints.starts[start], varints.values[position]
    if ((lengths < 0) | (lengths > varints.starts[end] - body_starts)).any():
        raise IrregularLayout
    return start, varints.at(body_starts + lengths)
