"""Weights by numbers: factors follow the formulas, and sums are exact and rounded once."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import Weighting
from pprof_merge.merging.selection import Chunk
from pprof_merge.merging.sums import WeightedSums
from pprof_merge.merging.weights import FACTOR_BITS, WEIGHTS, WeightInput, factors

from tests.faults.stacks import DAY, EPOCH, SECOND
from tests.oracle.builder import HUGE

if TYPE_CHECKING:
    from random import Random

MAGNITUDES = st.one_of(st.integers(0, 9), st.integers(0, HUGE), st.sampled_from([HUGE, 1 << 62]))
INPUTS = st.builds(
    lambda total, more, time, duration, group: WeightInput(total, total + more, time, duration, group),
    MAGNITUDES,
    MAGNITUDES,
    st.sampled_from([0, 1, EPOCH, EPOCH - DAY, EPOCH + 3 * DAY, HUGE]),
    st.sampled_from([1, SECOND, 30 * SECOND, HUGE]),
    st.sampled_from(["a", "b"]),
)


@given(
    profiles=st.lists(INPUTS, min_size=1, max_size=8),
    by=st.sampled_from([*WEIGHTS]),
    half_life=st.sampled_from([0, DAY, 7 * DAY]),
    random=st.randoms(use_true_random=False),
)
def test_factors_are_the_formulas(
    profiles: list[WeightInput], by: str, half_life: int, random: Random
) -> None:
    """Compared with fractions, where powers of two are floating-point numbers."""
    found = factors(Weighting(by, half_life), profiles)
    order = random.sample(range(len(profiles)), len(profiles))
    assert factors(Weighting(by, half_life), [profiles[i] for i in order]) == [found[i] for i in order]
    assert all(factor >= 1 for factor in found)
    largest = sum(f * profile.largest for f, profile in zip(found, profiles, strict=True))
    assert largest >> FACTOR_BITS <= (1 << 59) + sum(profile.largest >> 31 for profile in profiles)
    shares = [share(profile, profiles, by, half_life) for profile in profiles]
    weighted = sum(s * profile.total for s, profile in zip(shares, profiles, strict=True))
    if not weighted:
        return
    scale = min(
        sum(profile.total for profile in profiles) / weighted,
        Fraction(1 << 59) / sum(s * profile.largest for s, profile in zip(shares, profiles, strict=True)),
    )
    for factor, exact in zip(found, shares, strict=True):
        wanted = exact * scale * (1 << FACTOR_BITS)
        assert abs(factor - wanted) <= max(Fraction(1), wanted / 10**8)


def share(profile: WeightInput, profiles: list[WeightInput], by: str, half_life: int) -> Fraction:
    parts = {
        "sum": (1, 1),
        "duration": (profile.duration_nanos, profile.total),
        "instance": (1, sum(each.total for each in profiles if each.group == profile.group)),
    }
    numerator, denominator = parts["instance" if by == "version" else by]
    times = [each.time_nanos for each in profiles if each.time_nanos and each.total]
    if not denominator:
        return Fraction(0)
    if not half_life or not times:
        return Fraction(numerator, denominator)
    age = max(0, max(times) - (profile.time_nanos or min(times)))
    whole, rest = divmod(age, half_life)
    return Fraction(2 ** -(rest / half_life)) / (1 << whole) * Fraction(numerator, denominator)


@given(random=st.randoms(use_true_random=False), n_profiles=st.integers(1, 6), bits=st.integers(1, 59))
def test_sums_are_exact_and_rounded_once(random: Random, n_profiles: int, bits: int) -> None:
    """Compared with Python's integers, for any factors and values within the bound."""
    counts = [random.randrange(6) for _ in range(n_profiles)]
    large = [random.randrange(1, 1 << random.randrange(1, bits + 30)) for _ in range(n_profiles)]
    stacks = [random.randrange(3) for _ in range(sum(counts))]
    exact = [[0, 0] for _ in range(3)]
    values = []
    row = 0
    for factor, count in zip(large, counts, strict=True):
        bound = min(HUGE, (1 << (bits + FACTOR_BITS)) // (40_000 * factor))
        for _ in range(count):
            pair = [random.choice([0, 1, -1, bound, -bound, random.randint(-bound, bound)]) for _ in range(2)]
            pair = [max(-bound, min(bound, value)) for value in pair]
            values.append(pair)
            exact[stacks[row]][0] += factor * pair[0] * 1000
            exact[stacks[row]][1] += factor * pair[1]
            row += 1
    sums = WeightedSums(large, [1000, 1])
    sums.resize(3, 2)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    for begin in range(0, n_profiles, 2):  # in chunks
        end = min(begin + 2, n_profiles)
        rows = slice(offsets[begin], offsets[end])
        sums.add(
            Chunk(
                np.array(stacks[rows], np.int32),
                np.array(values[rows], np.int64).reshape(-1, 2),
                offsets[begin : end + 1] - offsets[begin],
            )
        )
    assert sums.take(np.arange(3)).tolist() == [[rounded(value) for value in row] for row in exact]


def test_halves_go_to_the_even_number() -> None:
    values = np.array([[1], [3], [5], [7], [-1], [-3], [-5]])
    sums = WeightedSums([1 << (FACTOR_BITS - 1)], [1])
    sums.resize(7, 1)
    sums.add(Chunk(np.arange(7, dtype=np.int32), values, np.array([0, 7])))
    assert sums.take(np.arange(7)).ravel().tolist() == [1, 2, 2, 4, -1, -2, -2]


def rounded(value: int) -> int:
    nearest = round(Fraction(value, 1 << FACTOR_BITS))  # half to even
    return nearest or (value > 0) - (value < 0)
