"""Reading sample records, with the labels in them, into columns: part of `fields`' step of `decode`."""

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
from pprof_merge.codec.strict_reader import LABEL, SAMPLE, StrictReader, WireType
from pprof_merge.codec.varint import MAX_BYTES
from pprof_merge.columns.ragged import spans
from pprof_merge.profile import Int64s, Ints

# The most bytes of a label, its tag and length included.
_MAX_LABEL_BYTES = 3 + 4 * (1 + MAX_BYTES)

# The kinds of varints in a sample. Most are locations; framing is tags and lengths.
_LOCATION, _FRAMING, _VALUE, _LABEL = range(4)

_KIND_OF_TAG = {
    1 << 3 | WireType.VARINT: _LOCATION,
    1 << 3 | WireType.LENGTH: _LOCATION,
    2 << 3 | WireType.VARINT: _VALUE,
    2 << 3 | WireType.LENGTH: _VALUE,
    3 << 3 | WireType.LENGTH: _LABEL,
}


class SampleColumns(NamedTuple):
    """Location ids, values and labels (n_labels, 4) of n samples, each ragged by its offsets (n + 1).

    Column i of `labels` is field i + 1 of the message Label.
    """

    location_ids: Ints
    location_offsets: Int64s
    values: Int64s
    value_offsets: Int64s
    labels: Int64s
    label_offsets: Int64s


class _SampleChunk(NamedTuple):
    """The columns of a chunk of n samples, as in `SampleColumns`, with counts (n) instead of offsets."""

    location_ids: Ints
    location_counts: Int64s
    values: Int64s
    value_counts: Int64s
    labels: Int64s
    label_counts: Int64s


def read_samples(table: EncodedRecords, n_types: int, reader: StrictReader) -> SampleColumns:
    """Return the columns of sample records. Raises MalformedProfile and LimitExceeded."""
    limits = reader.limits
    max_labels = limits.nested_messages
    max_bytes = (limits.stack_depth + n_types) * (1 + MAX_BYTES) + max_labels * _MAX_LABEL_BYTES
    # In the usual layout a sample has its stack (one field, or two for two frames), values and labels.
    max_fields = 2 + n_types + max_labels
    kind = RecordKind(SAMPLE, "sample", max_bytes)
    chunks: list[_SampleChunk] = []
    n_labels = n_frames = 0
    for chunk in read_chunks(table, kind, reader, lambda varints: _SampleReader(varints).chunk(max_fields)):
        n_labels += len(chunk.labels)
        limits.check("labels", n_labels)
        n_frames += len(chunk.location_ids)
        limits.check("frames", n_frames)
        chunks.append(chunk)
    ids, id_counts, values, value_counts, labels, label_counts = zip(*chunks, strict=True)
    return SampleColumns(
        concatenated(ids), offsets_of_chunks(id_counts),
        concatenated(values), offsets_of_chunks(value_counts),
        concatenated(labels), offsets_of_chunks(label_counts),
    )  # fmt: skip


class _SampleReader:
    """A reader of a chunk of samples. Each round reads one field of every sample that is not yet at its end.

    It marks the kind of each varint; a column is then a selection of the varints of a kind.
    """

    def __init__(self, varints: Varints) -> None:
        self._varints = varints
        self._kinds = np.full(len(varints.values), _LOCATION, np.uint8)
        self._counts = np.zeros((4, len(varints.ends)), np.int64)
        # The labels found in each round: their samples, and where their varints start and stop.
        self._labels: list[tuple[Int64s, Int64s, Int64s]] = []

    def chunk(self, max_fields: int) -> _SampleChunk:
        """Return the columns of all samples.

        Raises IrregularLayout if the layout is unusual, or if a sample has more than `max_fields` fields.
        """
        sample, end = np.arange(len(self._varints.ends)), self._varints.ends
        position = np.concatenate((np.zeros(1, np.int64), end))[:-1]
        for _ in range(max_fields + 1):
            unread = np.flatnonzero(position < end)
            if not unread.size:
                break
            if len(unread) < len(position):
                sample, position, end = sample[unread], position[unread], end[unread]
            position = self._read_field(sample, position, end)
        else:
            raise IrregularLayout
        labels, label_counts = self._label_columns()
        return _SampleChunk(
            _narrow(self._varints.values[self._kinds == _LOCATION]), self._counts[_LOCATION],
            self._varints.values[self._kinds == _VALUE], self._counts[_VALUE],
            labels, label_counts,
        )  # fmt: skip

    def _read_field(self, sample: Int64s, position: Int64s, end: Int64s) -> Int64s:
        """Read the field at each sample's position; return the position after it."""
        if (position + 1 >= end).any():
            raise IrregularLayout
        self._kinds[position] = _FRAMING
        tags, n_known = self._varints.values[position], 0
        following = np.empty_like(position)
        for tag, kind in _KIND_OF_TAG.items():
            if n_known == len(tags):
                break
            matching = (tags == tag).nonzero()[0]
            if not matching.size:
                continue
            n_known += len(matching)
            if tag & 7 == WireType.VARINT:
                start = position[matching] + 1
                stop = start + 1
                self._kinds[start] = kind
            else:
                start, stop = _body(self._varints, position[matching] + 1, end[matching])
                self._kinds[start - 1] = _FRAMING
                if kind != _LOCATION:
                    self._kinds[spans(start, stop - start)] = kind
                if kind == _LABEL:
                    self._labels.append((sample[matching], start, stop))
            self._counts[kind][sample[matching]] += stop - start
            following[matching] = stop
        if n_known < len(tags):
            raise IrregularLayout
        return following

    def _label_columns(self) -> tuple[Int64s, Int64s]:
        """Return the fields of all labels (n_labels, 4), in the order of samples, and each sample's count."""
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
    """Return the ids in 32 bits if they fit. The column of all frames is the longest in a profile."""
    fits = ids.min(initial=0) >= 0 and ids.max(initial=0) <= np.iinfo(np.int32).max
    return ids.astype(np.int32) if fits else ids


def _body(varints: Varints, position: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Return the first varint of the body whose length is at each position, and the first one after it."""
    start = position + 1
    body_starts, lengths = varints.starts[start], varints.values[position]
    if ((lengths < 0) | (lengths > varints.starts[end] - body_starts)).any():
        raise IrregularLayout
    return start, varints.index_at(body_starts + lengths)
