"""Histograms of latencies, and what is left of a profile in a range of them, also as Go computes it."""

from __future__ import annotations

import gzip
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import Collection, ProfileError, decode, encode, merge
from pprof_merge.analysis import (
    ALL_LATENCIES,
    N_BUCKETS,
    LatencyHistogram,
    LatencyRange,
    LatencyTimeline,
    TopTable,
    bucket_bounds,
    focus_latency,
)

from tests.merge.go_top import go_top, pprof
from tests.merge.stacked import stacked
from tests.merge.tracked import BELOW, MS, US, Events, delayed, tracked

if TYPE_CHECKING:
    from pathlib import Path

# A database that waits: for its disk, for a lock, and now and then for both.
DATABASE = [
    delayed("main;exec_query;LWLockAcquire;futex_wait", 7 * MS, 12, pid=10),
    delayed("main;exec_query;LWLockAcquire;futex_wait", 9 * MS, 3, pid=11),
    delayed("main;XLogFlush;fsync", 1 * MS, 40),
    delayed("main;XLogFlush;fsync", 33 * MS, 2),
    delayed("main;recv", 1_200 * MS, 5),
    delayed(BELOW, 700 * US, 300),
    delayed(BELOW, 3 * US, 20_000),
    delayed(BELOW, 0, 17),
]


def histogram(profile: bytes) -> LatencyHistogram:
    return LatencyHistogram.of(decode(profile))


def by_bound(found: LatencyHistogram) -> dict[int, tuple[int, int]]:
    """Return the events and their delay in each bucket in use, by its lower bound."""
    return {
        bucket_bounds(bucket)[0]: (int(found.counts[bucket]), int(found.delays[bucket]))
        for bucket in found.used
        if found.counts[bucket]
    }


def test_buckets_are_powers_of_two_without_a_gap() -> None:
    bounds = [bucket_bounds(bucket) for bucket in range(N_BUCKETS)]
    assert bounds[:4] == [(0, 1), (1, 2), (2, 4), (4, 8)]
    assert [upper for _, upper in bounds[:-1]] == [lower for lower, _ in bounds[1:]]
    assert bounds[-1] == (1 << 62, 1 << 63)


def test_a_histogram_has_every_event_and_its_delay() -> None:
    found = histogram(tracked(DATABASE))
    expected: Counter[int] = Counter()
    delays: Counter[int] = Counter()
    for events in DATABASE:
        assert events.latency is not None
        expected[events.latency] += events.waits
        delays[events.latency] += events.delay
    assert by_bound(found) == {bound: (expected[bound], delays[bound]) for bound in sorted(expected)}
    assert (found.count, found.delay, found.unlabelled) == (expected.total(), delays.total(), 0)


def test_a_merge_adds_histograms_up() -> None:
    first, second = tracked(DATABASE[:5]), tracked(DATABASE[3:], time_nanos=2)
    merged = LatencyHistogram.of(merge([decode(first), decode(second)]))
    added = histogram(first) + histogram(second)
    assert by_bound(merged) == by_bound(added)
    assert by_bound(LatencyHistogram.none() + added) == by_bound(added)


@given(st.lists(st.integers(0, (1 << 63) - 1), min_size=1, max_size=60), st.floats(0, 1))
def test_a_quantile_is_at_most_a_factor_of_two_off(delays: list[int], share: float) -> None:
    counts = Counter(max(delay.bit_length(), 0) for delay in delays)
    found = LatencyHistogram(
        np.array([counts[bucket] for bucket in range(N_BUCKETS)]), np.zeros(N_BUCKETS, np.int64), 0
    )
    rank = max(int(np.ceil(share * len(delays))), 1)
    exact = sorted(delays)[rank - 1]
    assert exact / 2 <= found.quantile(share) <= max(2 * exact, 1)


def test_quantiles_lie_inside_their_buckets() -> None:
    found = histogram(tracked([delayed("main;f", 1024, 50), delayed("main;f", 4096, 50)]))
    assert found.quantile(0.5) == 2048
    assert found.quantile(0.25) == pytest.approx(1024 * 2**0.5)
    assert found.quantile(0.75) == pytest.approx(4096 * 2**0.5)
    assert found.quantile(1) == 8192
    assert LatencyHistogram.none().quantile(0.5) == 0


def test_two_histograms_differ_by_shares() -> None:
    now = histogram(tracked([delayed("main;f", 1024, 10), delayed("main;f", 4096, 30)]))
    base = histogram(tracked([delayed("main;f", 1024, 100)]))
    differences = dict(enumerate(now.share_differences(base)))
    assert {bucket: share for bucket, share in differences.items() if share} == {11: -0.75, 13: 0.75}
    assert sum(LatencyHistogram.none().share_differences(base)) == -1


def test_a_timeline_has_the_histogram_of_every_step() -> None:
    collection = Collection()
    parts = [tracked(DATABASE[:2]), tracked(DATABASE[2:4], time_nanos=2), tracked(DATABASE, time_nanos=3)]
    for part in parts:
        collection.add(part)
    found = LatencyTimeline.of(collection, [0, 1, 2], [0, 0, 2], 4)
    assert found.counts.shape == (4, N_BUCKETS)
    assert by_bound(found.histogram(0)) == by_bound(histogram(parts[0]) + histogram(parts[1]))
    assert by_bound(found.histogram(1)) == {}
    assert by_bound(found.histogram(2)) == by_bound(histogram(parts[2]))
    assert by_bound(found.histogram(3)) == {}
    twice = LatencyTimeline.none(4) + found + found
    assert by_bound(twice.histogram(2)) == by_bound(histogram(parts[2]) + histogram(parts[2]))


def test_without_bounds_a_profile_stays_as_it_is() -> None:
    profile = decode(tracked(DATABASE))
    assert focus_latency(profile, ALL_LATENCIES) is profile
    assert ALL_LATENCIES.is_everything


def test_a_range_has_its_lower_bound_and_not_its_upper_one() -> None:
    profile = decode(tracked([delayed("main;f", 1024), delayed("main;g", 2048), delayed("main;h", 4096)]))

    def functions(begin: int | None, end: int | None) -> set[str]:
        return {*TopTable.of(focus_latency(profile, LatencyRange(begin, end))).names} - {"main"}

    assert functions(1024, 2048) == {"f"}
    assert functions(None, 4096) == {"f", "g"}
    assert functions(1025, None) == {"g", "h"}
    assert functions(4097, None) == set()


def test_what_only_other_samples_use_is_gone() -> None:
    focused = encode(focus_latency(decode(tracked(DATABASE)), LatencyRange(1_000 * MS)))
    assert b"recv" in focused
    assert b"fsync" not in focused
    assert decode(focused).header.duration_nanos == 10**10


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("1ms:", LatencyRange(MS)),
        (":1ms", LatencyRange(None, MS + 1)),
        ("2us:8ms", LatencyRange(2 * US, 8 * MS + 1)),
        ("524288ns", LatencyRange(1 << 19, (1 << 19) + 1)),
        ("1s:", LatencyRange(1_000 * MS)),
    ],
)
def test_go_takes_the_same_samples(theirs: str, ours: LatencyRange, tmp_path: Path) -> None:
    """Go's ranges have both of their bounds."""
    written = tracked(DATABASE)
    pprof(written, tmp_path, "-proto", "-output=focused", f"-tagfocus=latency={theirs}")
    of_go = decode(gzip.decompress((tmp_path / "focused").read_bytes()))
    focused = focus_latency(decode(written), ours)
    assert focused.samples.values.sum(axis=0).tolist() == of_go.samples.values.sum(axis=0).tolist()
    assert by_bound(LatencyHistogram.of(focused)) == by_bound(LatencyHistogram.of(of_go))
    table = TopTable.of(focused)
    rows = zip(table.names, table.flat[:, 1].tolist(), table.cum[:, 1].tolist(), strict=True)
    assert {name: (flat, cum) for name, flat, cum in rows} == go_top(encode(of_go), tmp_path, "delay", "ns")


def test_what_is_not_a_latency_is_in_no_bucket() -> None:
    for unit in ("milliseconds", "bytes", ""):
        found = histogram(tracked([delayed("main;f", 1024, 3)], unit=unit))
        assert (found.count, found.unlabelled) == (0, 3)
        assert not len(focus_latency(decode(tracked([delayed("f", 9)], unit=unit)), LatencyRange(0)).samples)
    found = histogram(tracked([Events("main;f", None, 2, 9)]))
    assert (found.count, found.unlabelled) == (0, 2)
    negative = tracked([Events("main;f", -1024, 2, 9)])
    assert (histogram(negative).count, histogram(negative).unlabelled) == (0, 2)
    assert not len(focus_latency(decode(negative), LatencyRange(None, MS)).samples)


def test_numbers_that_no_tracker_writes_harm_nothing() -> None:
    most = (1 << 63) - 1
    hostile = [
        *(Events("main;f", 1_000 + number, 1, 1_000) for number in range(5_000)),
        Events("main;f", most, most, most),
        Events("main;f", most, most, most, pid=2),
        Events("main;g", 8, -5, -40),
        Events("main;h", 8, 7, 70),
    ]
    found = histogram(tracked(hostile))
    assert found.counts[:10].sum() == 7
    assert found.counts[10] == 24
    assert found.counts[11:14].tolist() == [1024, 2048, 1904]
    assert found.quantile(0.5) > 0
    assert (found.counts >= 0).all()
    assert found.counts[4] == 7
    focused = focus_latency(decode(tracked(hostile)), LatencyRange(1 << 62))
    assert focused.samples.values.shape == (2, 2)


def test_other_profiles_have_no_histogram() -> None:
    with pytest.raises(ProfileError, match="samples/count, cpu/nanoseconds, not contentions/count and delay"):
        histogram(stacked({"main.f": 1}))
    swapped = tracked(DATABASE, sample_types=(("delay", "nanoseconds"), ("contentions", "count")))
    assert histogram(swapped).delay == sum(events.waits for events in DATABASE)
