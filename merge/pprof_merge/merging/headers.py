"""Headers of many profiles → the header of their merge, by the rules of google/pprof's `combineHeaders`."""

from collections.abc import Sequence
from typing import NamedTuple

from pprof_merge.errors import IncompatibleProfiles
from pprof_merge.profile import Header, ValueType

# Go's compiler uses the first sample type that is one of these (`cmd/internal/pgo/pprof.go`).
PGO_SAMPLE_TYPES = (ValueType(b"samples", b"count"), ValueType(b"cpu", b"nanoseconds"))
_HALF = 1 << 63


class SortKey(NamedTuple):
    """The key that the profiles of a merge are sorted by, so that the same set gives the same bytes.

    It is the time in ns, then the SHA-256 of the bare protobuf.
    """

    time_nanos: int
    digest: bytes


def combine_headers(headers: Sequence[Header], times: Sequence[int], durations: Sequence[int]) -> Header:
    """Return the header of the merge of profiles, which are given in the order of merging.

    `headers` are without times; unless a period is negative, equal headers may be given once, at the place of
    the first. `times` and `durations` of all profiles are in ns. Sample types are in the order of the first
    header.

    Raises IncompatibleProfiles if the period types or the sets of sample types differ.
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
    return Header(
        sample_types=first.sample_types,
        period_type=first.period_type,
        period=period,
        # As in Go, 0 is no time; times ascend, so the first is the earliest.
        time_nanos=next(filter(None, times), 0),
        duration_nanos=(sum(durations) + _HALF) % (2 * _HALF) - _HALF,  # wraps at 64 bits, as in Go
        comments=tuple(comments),
        default_sample_type=default_sample_type,
        doc_url=doc_url,
        drop_frames=first.drop_frames,
        keep_frames=first.keep_frames,
    )


def column_order(sample_types: tuple[ValueType, ...], wanted: tuple[ValueType, ...]) -> list[int]:
    """Return, for each of the `wanted` types, its column among `sample_types`, which has all of them."""
    unused = list(enumerate(sample_types))
    columns = []
    for sample_type in wanted:
        entry = next(entry for entry in unused if entry[1] == sample_type)
        unused.remove(entry)
        columns.append(entry[0])
    return columns


def check_compatible(first: Header, other: Header) -> None:
    """Raise IncompatibleProfiles if the period types or the sets of sample types differ."""
    if (other.period_type, other.sample_types) == (first.period_type, first.sample_types):
        return
    if other.period_type != first.period_type:
        raise IncompatibleProfiles(f"different period types: {first.period_type} and {other.period_type}")
    if sorted(other.sample_types) != sorted(first.sample_types):
        raise IncompatibleProfiles(f"different sample types: {_listed(first)} and {_listed(other)}")


def _listed(header: Header) -> str:
    return "(" + ", ".join(map(str, header.sample_types)) + ")"
