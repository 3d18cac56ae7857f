"""Decoding: inflate gzip, split the profile into records, read the records' fields, resolve ids and strings.

A profile that google/pprof's parser refuses is refused here too, with the place and the reason. Its fallback
to the formats that came before the protobuf is left out; the reason then says how to convert them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import chain
from typing import TypeVar

import numpy as np

from pprof_merge.codec.batch import Batch
from pprof_merge.codec.compression import inflate
from pprof_merge.codec.fields import read_scalars
from pprof_merge.codec.other_formats import other_format
from pprof_merge.codec.records import EncodedRecords, Records, split
from pprof_merge.codec.resolve import (
    StringTables,
    decode_functions,
    decode_locations,
    decode_mappings,
    decode_samples,
)
from pprof_merge.codec.strict_reader import VALUE_TYPE, StrictReader
from pprof_merge.columns.ragged import offsets_of
from pprof_merge.errors import IncompatibleProfiles, MalformedProfile, ProfileError
from pprof_merge.limits import Limits
from pprof_merge.profile import Header, Int64s, Profile, ValueType

T = TypeVar("T")

# Profiles are collected until they have so many bytes, and decoded together: for one small profile the fixed
# cost of NumPy's calls would dominate.
_BATCH_BYTES = 1 << 21


def decode(data: bytes, limits: Limits = Limits()) -> Profile:
    """Return the profile in `data`, gzip or bare protobuf. Its digest is the SHA-256 of the bare protobuf.

    Raises MalformedProfile and LimitExceeded, both of which are ProfileErrors, and nothing else.
    """
    protobuf = inflate(data, limits)
    try:
        return decode_batch([protobuf], limits).single()
    except ProfileError as error:
        raise _explained(error, protobuf) from None


def decode_all(
    many: Iterable[bytes], limits: Limits, take: Callable[[Batch], Iterable[T]]
) -> Iterator[T | ProfileError]:
    """Yield, for each profile in order, what `take` returns for it, or the error if it is refused.

    Each of `many` is gzip or bare protobuf. `take` gets a batch of consecutive profiles and returns one item
    for each of them. A batch costs less than its profiles one by one.
    """
    waiting: list[bytes] = []
    size = 0
    for data in many:
        try:
            protobuf = inflate(data, limits)
        except ProfileError as error:
            yield from _decoded(waiting, limits, take)
            waiting, size = [], 0
            yield _without_traceback(error)
            continue
        waiting.append(protobuf)
        size += len(protobuf)
        if size >= _BATCH_BYTES:
            yield from _decoded(waiting, limits, take)
            waiting, size = [], 0
    yield from _decoded(waiting, limits, take)


def _decoded(
    protobufs: Sequence[bytes], limits: Limits, take: Callable[[Batch], Iterable[T]]
) -> Iterator[T | ProfileError]:
    """Yield what `take` returns for each protobuf, or its error. If they fail together, try one by one."""
    if not protobufs:
        return
    try:
        batch = decode_batch(protobufs, limits)
    except ProfileError as error:
        if len(protobufs) == 1:
            yield _without_traceback(_explained(error, protobufs[0]))
            return
    else:
        yield from take(batch)
        return
    # One of them is refused, or they can't be decoded together: decode them one by one.
    for protobuf in protobufs:
        yield from _decoded([protobuf], limits, take)


def _explained(error: ProfileError, protobuf: bytes) -> ProfileError:
    """Return an error that says which other format this is, if that is known, or else the given error."""
    known = other_format(protobuf)
    return error if known is None else MalformedProfile(f"this is {known}")


def _without_traceback(error: ProfileError) -> ProfileError:
    """Return the error without its traceback and causes, which would keep the decoded data in memory."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def decode_batch(protobufs: Sequence[bytes], limits: Limits) -> Batch:
    """Return the batch of one or more bare protobufs. Each must be within the limits.

    Raises ProfileError if one is refused. With more than one protobuf the error does not say which, and may
    only mean that they can't be decoded together: their numbers of sample types differ, or together they are
    over a limit for one profile.
    """
    reader = StrictReader(limits)
    each = [_split(protobuf, reader) for protobuf in protobufs]
    headers = _headers(each, reader)
    n_types = len(headers[0].sample_types)
    if any(len(header.sample_types) != n_types for header in headers):
        raise IncompatibleProfiles("different numbers of sample types")
    strings = list(chain.from_iterable(records.strings for records in each))
    string_tables = StringTables(strings, _offsets([records.strings for records in each]))
    bodies, mapping_offsets = _joined([records.mappings for records in each])
    mappings, mapping_rows = decode_mappings(bodies, mapping_offsets, string_tables, reader)
    bodies, function_offsets = _joined([records.functions for records in each])
    functions, function_rows = decode_functions(bodies, function_offsets, string_tables, reader)
    bodies, location_offsets = _joined([records.locations for records in each])
    locations, location_rows = decode_locations(bodies, location_offsets, mapping_rows, function_rows, reader)
    bodies, offsets = _joined([records.samples for records in each])
    samples = decode_samples(bodies, offsets, location_rows, string_tables, reader, n_types=n_types)
    return Batch(
        headers=headers,
        digests=[hashlib.sha256(protobuf).digest() for protobuf in protobufs],
        samples=samples,
        sample_offsets=offsets,
        mappings=mappings,
        mapping_offsets=mapping_offsets,
        locations=locations,
        location_offsets=location_offsets,
        functions=functions,
        function_offsets=function_offsets,
        strings=strings,
    )


def _split(protobuf: bytes, reader: StrictReader) -> Records:
    if not protobuf:
        raise MalformedProfile("the input is empty")
    records = split(protobuf, reader)
    if not records.strings or records.strings[0]:
        raise MalformedProfile("the string table does not begin with the empty string")
    if records.samples and not records.sample_types:
        raise MalformedProfile("there are samples, but no sample types")
    return records


def _joined(tables: Sequence[EncodedRecords]) -> tuple[EncodedRecords, Int64s]:
    """Return the records of all profiles as one table, and the offsets of each profile's rows in it."""
    return EncodedRecords.of_all(tables), _offsets(tables)


def _offsets(tables: Sequence[Sized]) -> Int64s:
    return offsets_of(np.fromiter(map(len, tables), np.int64, len(tables)))


def _headers(each: Sequence[Records], reader: StrictReader) -> list[Header]:
    # One table for the value types of all profiles: each profile's sample types, then its period type.
    types = read_scalars(
        EncodedRecords.of(
            [body for records in each for body in (*records.sample_types, records.period_type)]
        ),
        VALUE_TYPE,
        "value type",
        reader,
    ).tolist()
    headers = []
    for records in each:
        end = len(records.sample_types) + 1
        headers.append(_header(records, types[:end]))
        del types[:end]
    return headers


def _header(records: Records, types: list[list[int]]) -> Header:
    def text(index: int, field: str) -> bytes:
        if not 0 <= index < len(records.strings):
            raise MalformedProfile(
                f"string index {index} is out of range: the string table has {len(records.strings)} strings",
                field,
            )
        return records.strings[index]

    *sample_types, period_type = types
    return Header(
        sample_types=tuple(
            ValueType(text(index, f"sample type {i}"), text(unit, f"sample type {i}"))
            for i, (index, unit) in enumerate(sample_types)
        ),
        period_type=ValueType(text(period_type[0], "period type"), text(period_type[1], "period type")),
        period=records.period,
        time_nanos=records.time_nanos,
        duration_nanos=records.duration_nanos,
        comments=tuple(text(index, "comment") for index in records.comments),
        default_sample_type=text(records.default_sample_type, "default sample type"),
        doc_url=text(records.doc_url, "doc url"),
        drop_frames=text(records.drop_frames, "drop frames"),
        keep_frames=text(records.keep_frames, "keep frames"),
    )
