"""The fields of sample records, with their labels, read into columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pprof_merge.fields import IrregularLayout, Pairs, Varints, offsets_joined, read, rows_joined, scatter
from pprof_merge.profile import Int64s
from pprof_merge.ragged import offsets_of, spans
from pprof_merge.varint import MAX_BYTES
from pprof_merge.wire import LABEL, SAMPLE, StrictReader, WireType

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

    location_ids: Int64s
    location_offsets: Int64s
    values: Int64s
    value_offsets: Int64s
    labels: Int64s
    label_offsets: Int64s


class _Chunk(NamedTuple):
    """The same of some samples, with counts (n) for offsets."""

    location_ids: Int64s
    location_counts: Int64s
    values: Int64s
    value_counts: Int64s
    labels: Int64s
    label_counts: Int64s


def read_samples(bodies: Sequence[bytes], n_types: int, reader: StrictReader) -> SampleColumns:
    """The columns of sample records. Raises MalformedProfile and LimitExceeded."""
    limits = reader.limits
    most_labels = limits.nested_messages
    longest = (limits.stack_depth + n_types) * (1 + MAX_BYTES) + most_labels * _LONGEST_LABEL
    chunks: list[_Chunk] = []
    n_labels = 0
    # Laid out as usual, a sample is its stack (two fields if it has two frames), its values and its labels.
    for chunk in read(
        bodies, SAMPLE, "sample", longest, reader, lambda varints: _samples(varints, 2 + n_types + most_labels)
    ):
        n_labels += len(chunk.labels)
        limits.check("labels", n_labels)
        chunks.append(chunk)
    ids, id_counts, values, value_counts, labels, label_counts = zip(*chunks, strict=True)
    return SampleColumns(
        rows_joined(ids), offsets_joined(id_counts),
        rows_joined(values), offsets_joined(value_counts),
        rows_joined(labels), offsets_joined(label_counts),
    )  # fmt: skip


def _samples(varints: Varints, most_fields: int) -> _Chunk:
    """One field of every sample a round, until all are read."""
    n_samples = len(varints.ends)
    kinds = np.full(len(varints.values), _LOCATION, np.uint8)
    counts = np.zeros((4, n_samples), np.int64)
    labels = _Labels()
    sample, end = np.arange(n_samples), varints.ends
    position = np.concatenate((np.zeros(1, np.int64), end))[:-1]
    for _ in range(most_fields + 1):
        unread = np.flatnonzero(position < end)
        if len(unread) < len(position):
            sample, position, end = sample[unread], position[unread], end[unread]
        if not sample.size:
            break
        if (position + 1 >= end).any():
            raise IrregularLayout
        kinds[position] = _FRAMING
        tags, known = varints.values[position], 0
        following = np.empty_like(position)
        for tag, kind in _KIND_OF_TAG.items():
            mine = np.flatnonzero(tags == tag)
            if not mine.size:
                continue
            known += len(mine)
            if tag & 7 == WireType.VARINT:
                start = position[mine] + 1
                stop = start + 1
                kinds[start] = kind
            else:
                start, stop = _run(varints, position[mine] + 1, end[mine])
                kinds[start - 1] = _FRAMING
                if kind == _LABEL:
                    labels.add(sample[mine], start, stop)
                if kind != _LOCATION:
                    kinds[spans(start, stop - start)] = kind
            counts[kind][sample[mine]] += stop - start
            following[mine] = stop
        if known < len(tags):
            raise IrregularLayout
        position = following
    else:
        raise IrregularLayout
    fields, label_counts = labels.columns(varints, n_samples)
    return _Chunk(
        np.compress(kinds == _LOCATION, varints.values), counts[_LOCATION],
        np.compress(kinds == _VALUE, varints.values), counts[_VALUE],
        fields, label_counts,
    )  # fmt: skip


def _run(varints: Varints, position: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """The first varint of the run whose length stands at each position, and the first one after it."""
    start = position + 1
    body_starts, lengths = varints.starts[start], varints.values[position]
    if ((lengths < 0) | (lengths > varints.starts[end] - body_starts)).any():
        raise IrregularLayout
    return start, varints.at(body_starts + lengths)


class _Labels:
    """Runs of varints that are labels, found one a sample and round."""

    def __init__(self) -> None:
        self._rounds: list[tuple[Int64s, Int64s, Int64s]] = []

    def add(self, sample: Int64s, start: Int64s, stop: Int64s) -> None:
        self._rounds.append((sample, start, stop))

    def columns(self, varints: Varints, n_samples: int) -> tuple[Int64s, Int64s]:
        """The fields of all labels (n_labels, 4), a sample's together, and the labels of each sample."""
        if not self._rounds:
            return np.zeros((0, LABEL.scalars[-1]), np.int64), np.zeros(n_samples, np.int64)
        sample, start, stop = (np.concatenate(column) for column in zip(*self._rounds, strict=True))
        order = np.argsort(start)
        counts = (stop - start)[order]
        pairs = Pairs.of(varints.values[spans(start[order], counts)], np.cumsum(counts))
        fields = scatter(pairs.tags, pairs.values, pairs.records, len(order), LABEL)
        return fields, np.bincount(sample, minlength=n_samples)
