"""Weights: by what the profiles of a merge count, and the factor that each of them gets for it.

    sum       as it is
    duration  by its duration: each second of profiling counts the same
    instance  each instance counts the same
    version   each version counts the same

and with a half-life, half as much for each that it is older than the newest. All is reckoned in integers,
so that the same profiles get the same factors on every machine and in any order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from math import isqrt
from typing import NamedTuple

from pprof_merge.errors import WeightingInvalid
from pprof_merge.sums import FACTOR_BITS

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_ONE = 1 << 64  # of an age's part in a factor
_QUOTIENT_BITS = 160
# Weighted values add up to no more, of any sample type.
_LARGEST_TOTAL = 1 << 59


class Weighting(NamedTuple):
    """By what profiles count, a name in WEIGHTS; and a half-life in ns, 0 for none."""

    by: str = "sum"
    half_life: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether each profile counts as it is."""
        return self == PLAIN

    @property
    def label(self) -> str:
        """The label whose values count the same; empty if it isn't by one."""
        return self.by if self.by in LABELS else ""

    def refusal(self, duration_nanos: int) -> str:
        """Why a profile of such a duration can't be weighed so; empty if it can."""
        has_none = self.by == "duration" and duration_nanos <= 0
        return "it has no duration to be weighed by" if has_none else ""


class Facts(NamedTuple):
    """What a profile's factor depends on.

    `total` is the sum of the magnitudes of the values that Go's compiler reads, `largest` that of the
    sample type in which it is largest; `group` the instance or version. Times in ns.
    """

    total: int
    largest: int
    time_nanos: int
    duration_nanos: int
    group: Hashable


def parse_weight(text: str) -> str:
    """A name in WEIGHTS, as it is. Raises WeightingInvalid."""
    if text not in WEIGHTS:
        raise WeightingInvalid(f"{text[:50]!r} is no weight; there are {', '.join(WEIGHTS)}")
    return text


def parse_half_life(text: str) -> int:
    """A half-life in ns from a text such as `7d`. Raises WeightingInvalid."""
    found = re.fullmatch(rf"([0-9]{{1,6}})([{''.join(_SECONDS)}])", text)
    if not found or not int(found[1]):
        raise WeightingInvalid(f"{text[:50]!r} is no age: a number from 1 on, and s, m, h, d or w, as in 7d")
    return int(found[1]) * _SECONDS[found[2]] * 1_000_000_000


def factors(weighting: Weighting, profiles: Sequence[Facts]) -> list[int]:
    """The factor of each profile, in 2^-32, and at least that.

    They are such that the total of all is what it is without weights, or 2^59 if that is less.
    """
    quotients = [
        decay * (numerator << _QUOTIENT_BITS) // denominator if denominator else 0
        for decay, (numerator, denominator) in zip(
            _decays(profiles, weighting.half_life), WEIGHTS[weighting.by](profiles), strict=True
        )
    ]
    total = sum(profile.total for profile in profiles)
    weighted = sum(quotient * profile.total for quotient, profile in zip(quotients, profiles, strict=True))
    largest = sum(quotient * profile.largest for quotient, profile in zip(quotients, profiles, strict=True))
    numerator, denominator = (total, weighted) if weighted else (1, _ONE << _QUOTIENT_BITS)
    if largest * numerator > _LARGEST_TOTAL * denominator:
        numerator, denominator = _LARGEST_TOTAL, largest
    return [
        max(1, ((quotient * numerator << (FACTOR_BITS + 1)) + denominator) // (2 * denominator))
        for quotient in quotients
    ]


_Fractions = list[tuple[int, int]]


def _by_sum(profiles: Sequence[Facts]) -> _Fractions:
    return [(1, 1)] * len(profiles)


def _by_duration(profiles: Sequence[Facts]) -> _Fractions:
    return [(profile.duration_nanos, profile.total) for profile in profiles]


def _by_group(profiles: Sequence[Facts]) -> _Fractions:
    totals: Counter[Hashable] = Counter()
    for profile in profiles:
        totals[profile.group] += profile.total
    return [(1, totals[profile.group]) for profile in profiles]


# What profiles can count by, and the factor of each: numerator and denominator, which is 0 where there is
# nothing to be weighed. Only their ratios mean something.
LABELS = ("instance", "version")
WEIGHTS: dict[str, Callable[[Sequence[Facts]], _Fractions]] = {
    "sum": _by_sum,
    "duration": _by_duration,
    **dict.fromkeys(LABELS, _by_group),
}
PLAIN = Weighting()


def _decays(profiles: Sequence[Facts], half_life: int) -> list[int]:
    """2^-(age / half-life) of each, in 2^-64; all the same if there is no half-life.

    Age counts from the newest profile that has a value. One without a time is as old as the oldest.
    """
    times = [profile.time_nanos for profile in profiles if profile.time_nanos and profile.total]
    if not (half_life and times):
        return [_ONE] * len(profiles)
    oldest, newest = min(times), max(times)
    ages = [max(0, newest - (profile.time_nanos or oldest)) for profile in profiles]
    return [_power_of_half(age, half_life) for age in ages]


def _power_of_half(numerator: int, denominator: int) -> int:
    """2^-(numerator / denominator) in 2^-64, of an exponent in 2^-32."""
    whole, rest = divmod(numerator, denominator)
    bits = (rest << 32) // denominator
    power = _ONE
    for place, powers in enumerate(_powers()):
        power = power * powers[bits >> (24 - 8 * place) & 255] >> 64
    return power >> whole


@cache
def _powers() -> list[list[int]]:
    """In 2^-64, for each byte of a fraction in 2^-32, the powers that its 256 values stand for."""
    root = _ONE // 2
    tables = []
    for _ in range(4):
        table = [_ONE]
        for _ in range(8):
            root = isqrt(root * _ONE)
            # Of a longer fraction every other power is one of the shorter one.
            table = [power for shorter in table for power in (shorter, shorter * root >> 64)]
        tables.append(table)
    return tables
