"""Bytes → `Profile`: inflate, split into records, read the records' fields, resolve ids and texts.

What google/pprof's parser refuses is refused, with the place and the reason. (Its fallback to the text
formats that came before the protobuf is left out.)
"""

from __future__ import annotations

import hashlib

from pprof_merge.compression import inflate
from pprof_merge.errors import MalformedProfile
from pprof_merge.fields import read_scalars
from pprof_merge.limits import Limits
from pprof_merge.profile import Header, Profile, ValueType
from pprof_merge.records import Records, split
from pprof_merge.tables import (
    check_texts,
    decode_functions,
    decode_locations,
    decode_mappings,
    decode_samples,
)
from pprof_merge.wire import VALUE_TYPE, StrictReader


def decode(data: bytes, limits: Limits = Limits()) -> Profile:
    """A profile from its bytes, gzip or bare protobuf; its digest is the bare protobuf's SHA-256.

    Raises ProfileError, by its kinds MalformedProfile and LimitExceeded, and nothing else.
    """
    protobuf = inflate(data, limits)
    if not protobuf:
        raise MalformedProfile("the input is empty")
    reader = StrictReader(limits)
    records = split(protobuf, reader)
    if not records.strings or records.strings[0]:
        raise MalformedProfile("the string table does not begin with the empty string")
    header = _header(records, reader)
    if records.samples and not header.sample_types:
        raise MalformedProfile("there are samples, but no sample types")
    n_strings = len(records.strings)
    mappings, mapping_rows = decode_mappings(records.mappings, n_strings, reader)
    functions, function_rows = decode_functions(records.functions, n_strings, reader)
    locations, location_rows = decode_locations(records.locations, mapping_rows, function_rows, reader)
    samples = decode_samples(
        records.samples, len(header.sample_types), location_rows, records.strings, reader
    )
    return Profile(
        header=header,
        samples=samples,
        mappings=mappings,
        locations=locations,
        functions=functions,
        strings=records.strings,
        digest=hashlib.sha256(protobuf).digest(),
    )


def _header(records: Records, reader: StrictReader) -> Header:
    def text(index: int, field: str) -> bytes:
        if not 0 <= index < len(records.strings):
            raise MalformedProfile(
                f"string {index} is not in the string table of {len(records.strings)}", field
            )
        return records.strings[index]

    # The period type goes last: one table for all value types spares a second reading.
    types = read_scalars([*records.sample_types, records.period_type], VALUE_TYPE, "value type", reader)
    check_texts(types[:-1], len(records.strings), "sample type")
    check_texts(types[-1:], len(records.strings), "period type")
    *sample_types, period_type = [
        ValueType(*(records.strings[index] for index in row)) for row in types.tolist()
    ]
    return Header(
        sample_types=tuple(sample_types),
        period_type=period_type,
        period=records.period,
        time_nanos=records.time_nanos,
        duration_nanos=records.duration_nanos,
        comments=tuple(text(index, "comment") for index in records.comments),
        default_sample_type=text(records.default_sample_type, "default sample type"),
        doc_url=text(records.doc_url, "doc url"),
        drop_frames=text(records.drop_frames, "drop frames"),
        keep_frames=text(records.keep_frames, "keep frames"),
    )
