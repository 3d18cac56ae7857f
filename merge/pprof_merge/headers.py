"""The headers of many profiles → the merged one's, by the rules of google/pprof's `combineHeaders`."""

from __future__ import annotations

from collections.abc import Sequence

from pprof_merge.errors import IncompatibleProfiles
from pprof_merge.profile import Header, Int64s, ValueType

# Go's compiler takes the first sample type that is one of these (`cmd/internal/pgo/pprof.go`).
WEIGHING_TYPES = (ValueType(b"samples", b"count"), ValueType(b"cpu", b"nanoseconds"))


def combine_headers(
    merged: Sequence[Header], headers: Sequence[Header], times: Int64s, durations: Int64s
) -> Header:
    """The header of what was `merged` before, if anything was, and of profiles in the order of merging: their
    `headers` without times, and their times and durations in ns. Sample types are in the first one's order.

    Raises IncompatibleProfiles where the period types or the sets of sample types differ.
    """
    every = [*merged, *headers]
    first = every[0]
    period = 0
    comments: dict[bytes, None] = {}
    default_sample_type = doc_url = b""
    for header in every:
        check_compatible(first, header)
        if period == 0 or header.period > period:
            period = header.period
        comments.update(dict.fromkeys(header.comments))
        default_sample_type = default_sample_type or header.default_sample_type
        doc_url = doc_url or header.doc_url
    # As in Go, where a 0 is no time. Times that come later aren't smaller.
    known = (*(header.time_nanos for header in merged), *times[times != 0][:1])
    return Header(
        sample_types=first.sample_types,
        period_type=first.period_type,
        period=period,
        time_nanos=next(filter(None, map(int, known)), 0),
        duration_nanos=_wrapped(sum((header.duration_nanos for header in merged), int(durations.sum()))),
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
