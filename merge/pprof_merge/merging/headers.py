"""The headers of many profiles → the merged one's, by the rules of google/pprof's `combineHeaders`."""

from __future__ import annotations

from collections.abc import Sequence

from pprof_merge.errors import IncompatibleProfiles
from pprof_merge.profile import Header, Int64s, ValueType

# Go's compiler takes the first sample type that is one of these (`cmd/internal/pgo/pprof.go`).
WEIGHING_TYPES = (ValueType(b"samples", b"count"), ValueType(b"cpu", b"nanoseconds"))


def combine_headers(headers: Sequence[Header], times: Int64s, durations: Int64s) -> Header:
    """The header of a merge of profiles, in its order: of their `headers` without times, and their times and
    durations in ns. Sample types are in the first one's order.

    Raises IncompatibleProfiles where the period types or the sets of sample types differ.
    """
    first = headers[0]
    period = 0
    comments: dict[bytes, None] = {}
    default_sample_type = doc_url = b""
    for header in headers:
        check_compatible(first, header)
        if period == 0 or header.period > period:
            period = header.period
        comments.update(dict.fromkeys(header.comments))
        default_sample_type = default_sample_type or header.default_sample_type
        doc_url = doc_url or header.doc_url
    known = times[times != 0][:1]  # as in Go, where a 0 is no time; those that come later aren't smaller
    return Header(
        sample_types=first.sample_types,
        period_type=first.period_type,
        period=period,
        time_nanos=int(known.sum()),
        duration_nanos=int(durations.sum()),  # wrapping at 64 bits as Go's
        comments=tuple(comments),
        default_sample_type=default_sample_type,
        doc_url=doc_url,
        drop_frames=first.drop_frames,
        keep_frames=first.keep_frames,
    )


def in_columns(values: Int64s, sample_types: tuple[ValueType, ...], wanted: tuple[ValueType, ...]) -> Int64s:
    """Values (n, n_types) of these types, in columns as is wanted."""
    return values if sample_types == wanted else values[:, column_order(sample_types, wanted)]


def column_order(sample_types: tuple[ValueType, ...], wanted: tuple[ValueType, ...]) -> list[int]:
    """For each of the types that are wanted, the column that holds its values, of those of these types."""
    unused = list(enumerate(sample_types))
    columns = []
    for sample_type in wanted:
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
