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
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cache
from math import isqrt
from operator import mul
from typing import NamedTuple

import numpy as np

from pprof_merge.errors import UnfitForWeight, WeightingInvalid
from pprof_merge.merging.dictionary import Dictionary
from pprof_merge.merging.headers import WEIGHING_TYPES, check_compatible
from pprof_merge.merging.origins import Told, origins_of
from pprof_merge.merging.selection import SelectedTraces
from pprof_merge.merging.sums import FACTOR_BITS, WeightedSums
from pprof_merge.profile import Header, Int64s, UInt64s

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
        return self == PLAIN_WEIGHTING

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
PLAIN_WEIGHTING = Weighting()


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


# Most stacks are sampled once or twice; so that their shares survive rounding, counts are in thousandths.
_SCALES = {b"count": 1000}
_HALF = np.uint64(32)
_LOWER_HALF = np.uint64((1 << 32) - 1)


def weighted_sums(
    weighting: Weighting, dictionary: Dictionary, profiles: SelectedTraces, told: Sequence[Told]
) -> WeightedSums:
    """For a merge of these profiles, in the order of merging, with what is told of each from outside.

    Raises UnfitForWeight where one can't be weighed so, and IncompatibleProfiles where their types differ.
    """
    if not len(profiles):
        return WeightedSums([], [])
    times, durations = profiles.times.tolist(), profiles.durations.tolist()
    for duration_nanos in durations:
        if refusal := weighting.refusal(duration_nanos):
            raise UnfitForWeight(refusal)
    header, *others = profiles.headers()
    for other in others:
        check_compatible(header, other)
    column = _column(header)
    scales = [_SCALES.get(sample_type.unit, 1) for sample_type in header.sample_types]
    facts = [
        Facts(
            total=magnitudes[column] if magnitudes else 0,
            largest=max(map(mul, magnitudes, scales), default=0),
            time_nanos=time_nanos,
            duration_nanos=duration_nanos,
            group=group,
        )
        for time_nanos, duration_nanos, magnitudes, group in zip(
            times,
            durations,
            _magnitudes(profiles, header),
            _groups(weighting.label, dictionary, profiles, told),
            strict=True,
        )
    ]
    return WeightedSums(factors(weighting, facts), scales)


def _column(header: Header) -> int:
    """The column by which Go's compiler weighs; the first where it finds none."""
    types = header.sample_types
    return next((column for column, each in enumerate(types) if each in WEIGHING_TYPES), 0)


def _magnitudes(profiles: SelectedTraces, header: Header) -> Iterator[list[int]]:
    """Of each profile the sums of its values' magnitudes, one a sample type, in halves of 32 bits."""
    for part in profiles.parts(header.sample_types):
        # As an unsigned number, also the magnitude of -2^63 is right.
        sizes = np.abs(part.chunk.values).view(np.uint64)
        upper, lower = (
            _sums(sizes >> _HALF, part.chunk.offsets),
            _sums(sizes & _LOWER_HALF, part.chunk.offsets),
        )
        for uppers, lowers in zip(upper.tolist(), lower.tolist(), strict=True):
            yield [(high << 32) + low for high, low in zip(uppers, lowers, strict=True)]


def _sums(rows: UInt64s, offsets: Int64s) -> UInt64s:
    """The sums of the rows from each offset to the next."""
    sums = np.zeros((len(offsets) - 1, rows.shape[1]), np.uint64)
    filled = np.flatnonzero(np.diff(offsets))
    for column in range(rows.shape[1]):
        sums[filled, column] = np.add.reduceat(rows[:, column], offsets[filled])
    return sums


def _groups(
    label: str, dictionary: Dictionary, profiles: SelectedTraces, told: Sequence[Told]
) -> list[Hashable]:
    """Which instances or versions each profile is of.

    One that doesn't tell of which instance it is is an instance of its own.
    """
    if not label:
        return [None] * len(profiles)
    origins = origins_of(dictionary, profiles, told)
    if label == "version":
        return [origin.versions for origin in origins]
    return [origin.instances or number for number, origin in enumerate(origins)]
