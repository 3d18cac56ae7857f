"""Histograms of powers of two: their statistics, and their windows of minutes and hours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.latency import Histogram, Windows

HOUR = 3600


def histogram_of(*latencies: int) -> Histogram:
    counts: dict[int, int] = {}
    for latency in latencies:
        counts[latency.bit_length()] = counts.get(latency.bit_length(), 0) + 1
    return Histogram(counts, sum(latencies), min(latencies), max(latencies))


def test_statistics() -> None:
    found = histogram_of(0, 1, 5, 7, 1000).as_json()
    assert found["count"] == 5
    assert (found["min_ns"], found["max_ns"], found["total_ns"]) == (0, 1000, 1013)
    assert found["average_ns"] == pytest.approx(1013 / 5)
    assert found["buckets"] == [
        {"from_ns": 0, "to_ns": 1, "count": 1},
        {"from_ns": 1, "to_ns": 2, "count": 1},
        {"from_ns": 4, "to_ns": 8, "count": 2},
        {"from_ns": 512, "to_ns": 1024, "count": 1},
    ]
    assert 4 <= found["p50_ns"] <= 8
    assert found["p999_ns"] <= 1000


def test_nothing_has_no_statistics() -> None:
    found = Histogram().as_json()
    assert found["count"] == found["total_ns"] == 0
    assert found["min_ns"] is found["p50_ns"] is None
    assert found["buckets"] == []


@given(st.lists(st.integers(0, 10**12), min_size=1), st.sampled_from([0.5, 0.9, 0.99, 0.999]))
def test_a_quantile_is_in_the_right_bucket(latencies: list[int], share: float) -> None:
    rank = next(i for i in range(1, len(latencies) + 1) if i >= share * len(latencies))
    exact = sorted(latencies)[rank - 1]
    estimate = histogram_of(*latencies).quantile(share)
    assert min(latencies) <= estimate <= max(latencies)
    low, high = (1 << exact.bit_length()) >> 1, 1 << exact.bit_length()
    assert low <= estimate <= high


@given(st.lists(st.integers(0, 10**12), min_size=1), st.lists(st.integers(0, 10**12), min_size=1))
def test_a_merge_is_the_histogram_of_all(some: list[int], others: list[int]) -> None:
    together = Histogram()
    together.merge(histogram_of(*some))
    together.merge(histogram_of(*others))
    together.merge(Histogram())
    assert together == histogram_of(*some, *others)


def test_windows_forget_what_is_older() -> None:
    windows, start = Windows(), 1_800_000_000.0
    for second in range(0, 20 * 60, 10):
        windows.add(start + second, histogram_of(second))
    now = start + 20 * 60
    assert 6 <= windows.minutes(now, 1).count <= 7
    assert 30 <= windows.minutes(now, 5).count <= 31
    assert 90 <= windows.minutes(now, 15).count <= 91
    assert windows.minutes(now, 1).min >= 19 * 60 - 10
    assert windows.all.count == 120
    assert windows.minutes(now + HOUR, 15).count == 0


def test_hours_are_those_of_the_last_day() -> None:
    windows, start = Windows(), 500_000 * HOUR
    for hour in range(48):
        windows.add(start + hour * HOUR + 1, histogram_of(hour))
    now = start + 47 * HOUR + 1800
    hours = windows.hours(now)
    assert list(hours) == [start + hour * HOUR for hour in range(24, 48)]
    assert [histogram.max for histogram in hours.values()] == list(range(24, 48))


def test_a_clock_that_steps_back_loses_nothing() -> None:
    windows = Windows()
    windows.add(1_800_000_000.0, histogram_of(1))
    windows.add(1_700_000_000.0, histogram_of(2))
    assert windows.all.count == windows.minutes(1_800_000_000.0, 1).count == 2
