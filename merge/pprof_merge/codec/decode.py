"""Decoding: inflate gzip, read the columns, and hand them on as a `Profile`.

A profile that google/pprof's parser refuses is refused here too, with the place and the reason. Its fallback
to the formats that came before the protobuf is left out; the reason then says how to convert them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from pprof_merge.codec.compression import inflate
from pprof_merge.codec.other_formats import other_format
from pprof_merge.codec.reader import (
    DEFAULT_SAMPLE_TYPE,
    DOC_URL,
    DROP_FRAMES,
    DURATION_NANOS,
    KEEP_FRAMES,
    PERIOD,
    TIME_NANOS,
    Reader,
)
from pprof_merge.columns.views import view32, view64
from pprof_merge.errors import MalformedProfile, ProfileError
from pprof_merge.limits import Limits
from pprof_merge.profile import (
    Functions,
    Header,
    Int64s,
    Labels,
    Lines,
    Locations,
    Mappings,
    Profile,
    Samples,
    ValueType,
)


def decode(data: bytes, limits: Limits = Limits()) -> Profile:
    """Return the profile in `data`, gzip or bare protobuf. Its digest is the SHA-256 of the bare protobuf.

    Raises MalformedProfile and LimitExceeded, both of which are ProfileErrors, and nothing else.
    """
    return profile_of(read(data, limits))


class Summary(NamedTuple):
    """A profile without its tables.

    `digest` (32 bytes) is the SHA-256 of the bare protobuf, and `start_lines` the number of functions that
    have one.
    """

    header: Header
    digest: bytes
    samples: int
    start_lines: int


def summaries(many: Iterable[bytes], limits: Limits) -> Iterator[Summary | ProfileError]:
    """Yield, for each of many profiles in order, its summary, or the error if it is refused.

    Each of `many` is gzip or bare protobuf, and is read as `decode` reads it.
    """
    for data in many:
        try:
            reader = read(data, limits)
        except ProfileError as error:
            yield without_traceback(error)
        else:
            yield summary_of(reader)


def read(data: bytes, limits: Limits) -> Reader:
    """Return the columns of a profile, gzip or bare protobuf. Raises as `decode` does."""
    protobuf = inflate(data, limits)
    reader = Reader(protobuf, limits)
    try:
        reader.read()
    except ProfileError:
        known = other_format(protobuf)
        if known is None:
            raise
        raise MalformedProfile(f"this is {known}") from None
    return reader


def without_traceback(error: ProfileError) -> ProfileError:
    """Return the error without its traceback and causes, which would keep the decoded data in memory."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def digest_of(reader: Reader) -> bytes:
    """Return the digest of a profile: the SHA-256 of the bare protobuf."""
    return hashlib.sha256(reader.data).digest()


def summary_of(reader: Reader) -> Summary:
    """Return the summary of a profile."""
    start_lines = functions_of(reader)[:, 4]
    return Summary(header_of(reader), digest_of(reader), reader.n_samples, int(np.count_nonzero(start_lines)))


def functions_of(reader: Reader) -> Int64s:
    """Return the functions, (n_functions, 5): id, name, system name, file name and start line."""
    return view64(reader.functions, 5 * reader.n_functions).reshape(-1, 5)


def header_of(reader: Reader) -> Header:
    """Return the header of a profile."""
    strings, scalars, types = reader.strings, reader.scalars, reader.types
    return Header(
        sample_types=tuple(
            ValueType(strings[types[2 * i]], strings[types[2 * i + 1]]) for i in range(reader.n_types)
        ),
        period_type=ValueType(strings[reader.period_type[0]], strings[reader.period_type[1]]),
        period=scalars[PERIOD],
        time_nanos=scalars[TIME_NANOS],
        duration_nanos=scalars[DURATION_NANOS],
        comments=tuple(strings[comment] for comment in reader.comments),
        default_sample_type=strings[scalars[DEFAULT_SAMPLE_TYPE]],
        doc_url=strings[scalars[DOC_URL]],
        drop_frames=strings[scalars[DROP_FRAMES]],
        keep_frames=strings[scalars[KEEP_FRAMES]],
    )


def profile_of(reader: Reader) -> Profile:
    """Return the profile that was read. Its arrays are views of the reader's columns."""
    mappings = view64(reader.mappings, 10 * reader.n_mappings).reshape(-1, 10)
    unsigned = mappings.view(np.uint64)
    functions = functions_of(reader)
    locations = view64(reader.locations, 5 * reader.n_locations).reshape(-1, 5)
    lines = view64(reader.lines, 3 * reader.n_lines).reshape(-1, 3)
    labels = view64(reader.labels, 4 * reader.n_labels).reshape(-1, 4)
    n_samples, n_types = reader.n_samples, reader.n_types
    return Profile(
        header=header_of(reader),
        samples=Samples(
            values=view64(reader.values, n_samples * n_types).reshape(n_samples, n_types),
            locations=view32(reader.frames, reader.n_frames),
            location_offsets=view64(reader.frame_ends, n_samples + 1),
            labels=Labels(
                key=labels[:, 0],
                text=labels[:, 1],
                number=labels[:, 2],
                unit=labels[:, 3],
                offsets=view64(reader.label_ends, n_samples + 1),
            ),
        ),
        mappings=Mappings(
            start=unsigned[:, 1],
            limit=unsigned[:, 2],
            offset=unsigned[:, 3],
            filename=mappings[:, 4],
            build_id=mappings[:, 5],
            flags=mappings[:, 6:] != 0,
        ),
        locations=Locations(
            mapping=locations[:, 1],
            address=locations[:, 2].view(np.uint64),
            folded=locations[:, 4] != 0,
            lines=Lines(
                function=lines[:, 0],
                line=lines[:, 1],
                column=lines[:, 2],
                offsets=np.concatenate((np.zeros(1, np.int64), locations[:, 3])),
            ),
        ),
        functions=Functions(functions[:, 1], functions[:, 2], functions[:, 3], functions[:, 4]),
        strings=reader.strings,
        digest=digest_of(reader),
    )
