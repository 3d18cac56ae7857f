"""Decoding: inflate gzip, read the columns, and hand them on as a `Profile`.

A profile that google/pprof's parser refuses is refused here too, with the place and the reason. Its fallback
to the formats that came before the protobuf is left out; the reason then says how to convert them.
"""

from collections.abc import Iterable, Iterator
from time import perf_counter_ns
from typing import NamedTuple

from isal import isal_zlib

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
from pprof_merge.errors import LimitExceeded, MalformedProfile, ProfileError
from pprof_merge.limits import Limits
from pprof_merge.profile import Header, Profile, ProfileColumns, ValueType

GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WBITS = 31
# How often a gzip may be inside another one, the outer one counted.
_MOST_GZIPS = 2
_IsalError: type[Exception] = isal_zlib.IsalError  # type: ignore[assignment]  # its stub says instance


class StepTimes:
    """How long the steps of reading profiles took, in ns, added up over all that were read.

    Functions that take one add to it. `intern` is the numbering in a `Collection`.
    """

    inflate = decode = intern = 0


def decode(data: bytes, limits: Limits = Limits(), times: StepTimes | None = None) -> Profile:
    """Return the profile in `data`, gzip or bare protobuf. Its digest is the SHA-256 of the bare protobuf.

    Raises MalformedProfile and LimitExceeded, both of which are ProfileErrors, and nothing else.
    """
    return profile_of(read(data, limits, times))


class Summary(NamedTuple):
    """A profile without its tables.

    `digest` (32 bytes) is the SHA-256 of the bare protobuf, and `start_lines` the number of functions that
    have one.
    """

    header: Header
    digest: bytes
    samples: int
    start_lines: int


def summaries(
    many: Iterable[bytes], limits: Limits, times: StepTimes | None = None
) -> Iterator[Summary | ProfileError]:
    """Yield, for each of many profiles in order, its summary, or the error if it is refused.

    Each of `many` is gzip or bare protobuf, and is read as `decode` reads it.
    """
    for data in many:
        try:
            summary, _ = read_summary(data, limits, times)
        except ProfileError as error:
            yield without_traceback(error)
        else:
            yield summary


def read_summary(
    data: bytes, limits: Limits, times: StepTimes | None = None
) -> tuple[Summary, ProfileColumns]:
    """Return the summary of a profile, gzip or bare protobuf, and its columns. Raises as `decode` does."""
    reader = read(data, limits, times)
    return Summary(
        header_of(reader), digest_of(reader.data), reader.n_samples, reader.count_start_lines()
    ), reader


def read(data: bytes, limits: Limits, times: StepTimes | None = None) -> Reader:
    """Return the columns of a profile, gzip or bare protobuf. Raises as `decode` does."""
    began = perf_counter_ns()
    protobuf = inflate(data, limits)
    inflated = perf_counter_ns()
    reader = Reader(protobuf, limits)
    try:
        reader.read()
    except ProfileError:
        from pprof_proto.other_formats import other_format  # noqa: PLC0415 - valid profiles need no expressions

        known = other_format(protobuf)
        if known is None:
            raise
        raise MalformedProfile(f"this is {known}") from None
    if times is not None:
        times.inflate += inflated - began
        times.decode += perf_counter_ns() - inflated
    return reader


def inflate(data: bytes, limits: Limits = Limits()) -> bytes:
    """Return the bare protobuf of a pprof file: inflate gzip, and return all else as is.

    gzip is recognized by its magic bytes. What is gzip then, too, is inflated once more: some senders
    compress what is compressed.

    Never holds more than `limits.inflated_bytes` and one block of output, of each gzip. Raises LimitExceeded,
    and MalformedProfile if a gzip is truncated, fails its checksum, or is followed by something else.
    """
    depth = 0
    while data.startswith(GZIP_MAGIC):
        if depth == _MOST_GZIPS:
            raise MalformedProfile("it is gzip inside gzip inside gzip", "gzip")
        depth += 1
        limits.check("compressed_bytes", len(data))
        members = []
        room = limits.inflated_bytes
        while data:  # a gzip file may have several members, one after another
            member = isal_zlib.decompressobj(_GZIP_WBITS)
            try:
                inflated = member.decompress(data, room + 1)
            except _IsalError as error:
                raise MalformedProfile(f"not valid gzip ({error})", "gzip") from error
            room -= len(inflated)
            if room < 0:
                raise LimitExceeded("inflated_bytes", limits.inflated_bytes)
            if not member.eof:
                raise MalformedProfile("the stream is truncated", "gzip")
            members.append(inflated)
            limits.check("gzip_members", len(members))
            data = member.unused_data
        data = members[0] if len(members) == 1 else b"".join(members)
    limits.check("inflated_bytes", len(data))
    return data


def digest_of(protobuf: bytes) -> bytes:
    """Return the SHA-256 of a bare protobuf, or of other bytes (32 bytes)."""
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, and the command mostly needs no digest

    return sha256(protobuf).digest()


def without_traceback(error: ProfileError) -> ProfileError:
    """Return the error without its traceback and causes, which would keep the decoded data in memory."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def header_of(reader: Reader) -> Header:
    """Return the header of a profile."""
    string, scalars, types = reader.string, reader.scalars, reader.types
    sample_types = [ValueType(string(types[2 * i]), string(types[2 * i + 1])) for i in range(reader.n_types)]
    # In the order of the fields: by their names would take as long as the rest of a small profile's header.
    return Header(
        tuple(sample_types),
        ValueType(string(reader.period_type[0]), string(reader.period_type[1])),
        scalars[PERIOD],
        scalars[TIME_NANOS],
        scalars[DURATION_NANOS],
        tuple([string(comment) for comment in reader.comments]),
        string(scalars[DEFAULT_SAMPLE_TYPE]),
        string(scalars[DOC_URL]),
        string(scalars[DROP_FRAMES]),
        string(scalars[KEEP_FRAMES]),
    )


def profile_of(reader: Reader) -> Profile:
    """Return the profile that was read."""
    profile = Profile(header_of(reader), reader, digest_of(reader.data))
    reader.make_strings()
    reader.data = b""  # the columns have all of it
    return profile
