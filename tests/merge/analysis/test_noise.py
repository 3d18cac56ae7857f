"""Noise: the interval of a difference of two shares, and the number of samples behind a profile."""

from __future__ import annotations

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import decode
from pprof_merge.analysis import CONFIDENCE, count_samples, difference_interval
from pprof_proto.profile_pb2 import Profile

from tests.merge.stacked import stacked

SHARES = st.floats(0, 1)
NUMBERS = st.integers(1, 10**9)


@given(SHARES, NUMBERS, SHARES, NUMBERS)
def test_the_difference_is_in_its_interval(now: float, n_now: int, base: float, n_base: int) -> None:
    found = difference_interval(now, n_now, base, n_base)
    assert found is not None
    assert -1 <= found.low <= now - base <= found.high <= 1


@given(SHARES, NUMBERS, SHARES, NUMBERS)
def test_the_interval_is_the_other_way_round_for_the_sides_swapped(
    now: float, n_now: int, base: float, n_base: int
) -> None:
    found = difference_interval(now, n_now, base, n_base)
    back = difference_interval(base, n_base, now, n_now)
    assert found is not None
    assert back is not None
    assert (found.low, found.high) == pytest.approx((-back.high, -back.low))
    assert found.is_noise == back.is_noise


@given(SHARES, SHARES, st.integers(1, 10**6), st.integers(2, 1000))
def test_more_samples_narrow_the_interval(now: float, base: float, n: int, factor: int) -> None:
    few, many = difference_interval(now, n, base, n), difference_interval(now, n * factor, base, n * factor)
    assert few is not None
    assert many is not None
    assert many.high - many.low < few.high - few.low


@given(SHARES, NUMBERS)
def test_the_same_share_is_noise(share: float, n: int) -> None:
    found = difference_interval(share, n, share, n)
    assert found is not None
    assert found.is_noise


@pytest.mark.parametrize("share", [0.01, 0.05, 0.3, 0.5])
@pytest.mark.parametrize(("n_now", "n_base"), [(100, 100), (60, 200)])
def test_it_is_as_confident_as_it_says(share: float, n_now: int, n_base: int) -> None:
    """Adds up the exact probabilities of all outcomes for two equal shares."""
    covered = sum(
        binomial(seen_now, n_now, share) * binomial(seen_base, n_base, share)
        for seen_now in range(n_now + 1)
        for seen_base in range(n_base + 1)
        if (found := difference_interval(seen_now / n_now, n_now, seen_base / n_base, n_base))
        and found.is_noise
    )
    assert CONFIDENCE - 0.005 < covered <= 1


def binomial(seen: int, n: int, share: float) -> float:
    return comb(n, seen) * share**seen * (1 - share) ** (n - seen)


def test_a_change_shows_once_there_are_samples_enough() -> None:
    few, many = difference_interval(0.12, 200, 0.10, 200), difference_interval(0.12, 20000, 0.10, 20000)
    assert few is not None
    assert few.is_noise
    assert many is not None
    assert not many.is_noise


@pytest.mark.parametrize(("n_now", "n_base"), [(0, 5), (5, 0), (None, 5), (5, None)])
def test_without_samples_there_is_no_interval(n_now: int | None, n_base: int | None) -> None:
    assert difference_interval(0.5, n_now, 0.5, n_base) is None


def test_a_cpu_profile_counts_its_samples() -> None:
    assert count_samples(decode(stacked({"main;work": 70, "main;rest": 30})), 1) == 100


@pytest.mark.parametrize(
    ("type_", "unit", "period_unit", "period", "expected"),
    [
        ("inuse_space", "bytes", "bytes", 512, 4),
        ("inuse_objects", "count", "bytes", 512, None),
        ("contentions", "count", "count", 1, None),
        ("delay", "nanoseconds", "count", 1, None),
        ("delay", "nanoseconds", "nanoseconds", 1, None),
        ("cpu", "nanoseconds", "nanoseconds", 0, None),
        ("cpu", "nanoseconds", "nanoseconds", -5, None),
    ],
)
def test_other_values_count_by_the_period_where_it_has_their_unit(
    type_: str, unit: str, period_unit: str, period: int, expected: int | None
) -> None:
    profile = Profile(
        string_table=[text.encode() for text in ("", type_, unit, "period", period_unit)], period=period
    )
    profile.sample_type.add(type=1, unit=2)
    profile.period_type.type = 3
    profile.period_type.unit = 4
    profile.location.add(id=1)
    profile.sample.add(location_id=[1], value=[2100])
    assert count_samples(decode(profile.SerializeToString()), 0) == expected
