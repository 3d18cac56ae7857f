"""The headers of many profiles → the merged one's, by the rules of google/pprof's `combineHeaders`."""

from __future__ import annotations

from collections.abc import Sequence

from pprof_merge.errors import IncompatibleProfiles
from pprof_merge.profile import Header, ValueType

# Go's compiler takes the first sample type that is one of these (`cmd/internal/pgo/pprof.go`).
WEIGHING_TYPES = (ValueType(b"samples", b"count"), ValueType(b"cpu", b"nanoseconds"))


def combine_headers(headers: Sequence[Header]) -> Header:
    """The merged header, of headers in the order of merging; sample types are in the first one's order.

    Raises IncompatibleProfiles where the period types or the sets of sample types differ.
    """
    first = headers[0]
    time_nanos = duration_nanos = period = 0
    comments: dict[bytes, None] = {}
    default_sample_type = doc_url = b""
    for header in headers:
        check_compatible(first, header)
        # As in Go: a 0 that comes later resets the time. In the order of time none does.
        if time_nanos == 0 or header.time_nanos < time_nanos:
            time_nanos = header.time_nanos
        if period == 0 or header.period > period:
            period = header.period
        duration_nanos += header.duration_nanos
        comments.update(dict.fromkeys(header.comments))
        default_sample_type = default_sample_type or header.default_sample_type
        doc_url = doc_url or header.doc_url
    return Header(
        sample_types=first.sample_types,
        period_type=first.period_type,
        period=period,
        time_nanos=time_nanos,
        duration_nanos=_wrapped(duration_nanos),
        comments=tuple(comments),
        default_sample_type=default_sample_type,
        doc_url=doc_url,
        drop_frames=first.drop_frames,
        keep_frames=first.keep_frames,
    )


def column_order(header: Header, sample_types: tuple[ValueType, ...]) -> list[int]:
    """For each of the sample types, the column of a profile with this header that holds its values."""
    unused = list(enumerate(header.sample_types))
    columns = []
    for sample_type in sample_types:
        entry = next(entry for entry in unused if entry[1] == sample_type)
        unused.remove(entry)
        columns.append(entry[0])
    return columns


def check_compatible(first: Header, other: Header) -> None:
    """Raises IncompatibleProfiles unless the two measure the same."""
    if (other.period_type, other.sample_types) == (first.period_type, first.sample_types):
        return
    if other.period_type != first.period_type:
        raise IncompatibleProfiles(f"period types {first.period_type} and {other.period_type}")
    if sorted(other.sample_types) != sorted(first.sample_types):
        raise IncompatibleProfiles(f"sample types {_listed(first)} and {_listed(other)}")


def _listed(header: Header) -> str:
    return "(" + ", ".join(map(str, header.sample_types)) + ")"


def _wrapped(total: int) -> int:
    """The sum in 64 bits, as Go's int64 has it."""
    return (total + (1 << 63)) % (1 << 64) - (1 << 63)
