"""Encoding samples, the largest part of a profile, and the one whose records differ most in length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np

from pprof_merge.codec.message_rows import MessageRows, message_sizes, scalar_messages, unsigned
from pprof_merge.codec.strict_reader import WireType
from pprof_merge.codec.varint import code_sizes, codes_of, encode_codes, varint_sizes
from pprof_merge.columns.ragged import offsets_of, spans
from pprof_merge.profile import Bytes, Int64s, Labels, Samples, UInt32s

# google/pprof writes up to so many numbers of a repeated field as separate fields, and packs more than that.
LONGEST_UNPACKED = 2

# How many locations of samples are encoded at once, which bounds the memory besides the result.
_CHUNK_LOCATIONS = 1 << 16

_SAMPLE = 2 << 3 | WireType.LENGTH
_LOCATION, _LOCATIONS = 1 << 3 | WireType.VARINT, 1 << 3 | WireType.LENGTH


def encode_samples(samples: Samples, string_indexes: Int64s) -> Iterator[bytes]:
    """Yield the records of all samples, in pieces.

    `string_indexes` has, for each of the profile's strings, its index in the string table that is written.
    """
    offsets = samples.location_offsets
    ids = _IdCodes.upto(int(samples.locations.max(initial=-1)) + 1)
    begin = 0
    while begin < len(samples):
        end = int(np.searchsorted(offsets, offsets[begin] + _CHUNK_LOCATIONS, side="right")) - 1
        end = min(max(end, begin + 1), len(samples))
        yield encode_codes(_codes(_slice(samples, begin, end), ids, string_indexes))
        begin = end


class _IdCodes(NamedTuple):
    """The ids of all locations: the code of each (n_locations,), and how many bytes it takes."""

    codes: UInt32s
    sizes: Bytes

    @classmethod
    def upto(cls, n_locations: int) -> Self:
        """Return the codes of the ids 1 to `n_locations`."""
        ids = np.arange(1, n_locations + 1, dtype=np.uint32)
        return cls(codes_of(ids), varint_sizes(ids))


def _slice(samples: Samples, begin: int, end: int) -> Samples:
    """Return the samples `begin` to `end` - 1."""
    locations = samples.location_offsets[begin : end + 1]
    labels = samples.labels.offsets[begin : end + 1]
    chosen = slice(labels[0], labels[-1])
    return Samples(
        samples.values[begin:end],
        samples.locations[locations[0] : locations[-1]],
        locations - locations[0],
        Labels(
            samples.labels.key[chosen],
            samples.labels.text[chosen],
            samples.labels.number[chosen],
            samples.labels.unit[chosen],
            labels - labels[0],
        ),
    )


def _codes(samples: Samples, ids: _IdCodes, string_indexes: Int64s) -> UInt32s:
    """Return the codes of all samples, one sample's after another's.

    A sample's codes are its tag and length, then its locations, its values and its labels.
    """
    n_ids = np.diff(samples.location_offsets)
    id_sizes = _sums(ids.sizes.take(samples.locations), samples.location_offsets)
    is_packed = n_ids > LONGEST_UNPACKED
    values = _values(samples.values)
    labels = _labels(samples.labels, string_indexes)
    label_codes, label_offsets = labels.codes(), offsets_of(labels.counts())[samples.labels.offsets]
    n_values, n_labels = values.counts(), np.diff(label_offsets)
    value_codes, value_offsets = values.codes(), offsets_of(n_values)

    sizes = np.where(is_packed, message_sizes(id_sizes), n_ids + id_sizes)
    sizes += _sums(code_sizes(value_codes), value_offsets) + _sums(code_sizes(label_codes), label_offsets)
    size_codes = codes_of(sizes.astype(np.uint32))
    n_location_codes = np.where(is_packed, 2 + n_ids, 2 * n_ids)
    heads = offsets_of(2 + n_location_codes + n_values + n_labels)
    codes = np.empty(heads[-1], np.uint32)
    codes[heads[:-1]] = _SAMPLE
    codes[heads[:-1] + 1] = size_codes
    first = heads[:-1] + 2
    packed, single = np.flatnonzero(is_packed), np.flatnonzero(~is_packed)
    codes[first[packed]] = _LOCATIONS
    codes[first[packed] + 1] = codes_of(id_sizes[packed].astype(np.uint32))
    id_positions = spans(first + 2, n_ids)
    if single.size:  # locations that aren't packed: a tag before each, and no length
        begins, counts = samples.location_offsets[single], n_ids[single]
        singles = spans(begins, counts)
        nth = singles - np.repeat(begins, counts)
        id_positions[singles] = np.repeat(first[single] + 1, counts) + 2 * nth
        codes[id_positions[singles] - 1] = _LOCATION
    codes[id_positions] = ids.codes.take(samples.locations)
    codes[spans(first + n_location_codes, n_values)] = value_codes
    codes[spans(heads[1:] - n_labels, n_labels)] = label_codes
    return codes


def _sums(sizes: Bytes, offsets: Int64s) -> Int64s:
    """Return the sum of each ragged row (n,)."""
    sums = np.zeros(len(offsets) - 1, np.int64)
    filled = np.flatnonzero(np.diff(offsets))
    if filled.size:
        sums[filled] = np.add.reduceat(sizes, offsets[filled], dtype=np.int64)
    return sums


def _values(values: Int64s) -> MessageRows:
    """Return the values of all samples, one sample a row, packed if there are many sample types."""
    n_samples, n_types = values.shape
    every = np.ones(n_samples, np.bool_)
    rows = MessageRows(n_samples)
    if n_types > LONGEST_UNPACKED:
        rows.message(2, varint_sizes(unsigned(values)).sum(axis=1, dtype=np.int64), every)
    for column in unsigned(values).T:
        if n_types > LONGEST_UNPACKED:
            rows.add(column, every)
        else:
            rows.number(2, column, every)
    return rows


def _labels(labels: Labels, string_indexes: Int64s) -> MessageRows:
    """Return the label records, one label a row."""
    is_text = labels.text >= 0
    columns = (
        string_indexes[labels.key],
        np.where(is_text, string_indexes[labels.text], 0),
        labels.number,
        np.where(is_text, 0, string_indexes[labels.unit]),
    )
    return scalar_messages(3, [unsigned(column) for column in columns])
