"""Weights: how much each profile of a merge counts, as a factor for its values.

    sum       profiles count as they are
    duration  each second of profiling counts the same
    instance  each instance counts the same
    version   each version counts the same

With a half-life, a profile counts half for each half-life that it is older than the newest profile; one from
after now, whose host's clock is ahead, counts as that does: see `times_until`. Profiles of several services
can be weighed so that each service has a given share. All
arithmetic is in integers, so that the same profiles get the same factors on every machine and in any order.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from math import isqrt
from typing import NamedTuple

from pprof_merge.errors import WeightingInvalid

# Factors are integers, in units of 2^-32.
FACTOR_BITS = 32
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
# The factor 1 for an age, in units of 2^-64.
_ONE = 1 << 64
_QUOTIENT_BITS = 160
_SERVICE_BITS = 256
# The most that the weighted values of any sample type add up to.
_LARGEST_TOTAL = 1 << 59


class Weighting(NamedTuple):
    """A weight, which is a name in WEIGHTS, and a half-life in ns, 0 for none.

    `services` has, by name, how much each of several services counts in relation to the others; empty if that
    is up to what each has sent.
    """

    by: str = "sum"
    half_life: int = 0
    services: tuple[tuple[str, int], ...] = ()

    @property
    def is_plain(self) -> bool:
        """True if each profile counts as it is: no weight, no half-life."""
        return self == PLAIN_WEIGHTING

    @property
    def label(self) -> str:
        """The label whose values count the same, such as `version`; empty if the weight is not by a label."""
        return self.by if self.by in LABELS else ""

    def refusal(self, duration_nanos: int) -> str:
        """Return why a profile with this duration can't be weighed, in words; empty if it can."""
        has_none = self.by == "duration" and duration_nanos <= 0
        return "it has no duration to be weighed by" if has_none else ""


class WeightInput(NamedTuple):
    """Properties of a profile that decide its factor. Times are in ns.

    `total` is the sum of the magnitudes of the values that Go's compiler reads. `largest` is the largest sum
    of magnitudes of any sample type, after scaling. `group` identifies the instances or versions; the
    `service` is one of the weighting's.
    """

    total: int
    largest: int
    time_nanos: int
    duration_nanos: int
    group: Hashable
    service: str = ""


def parse_weight(text: str) -> str:
    """Return the text if it is a name in WEIGHTS. Raises WeightingInvalid otherwise."""
    if text not in WEIGHTS:
        raise WeightingInvalid(f"unknown weight {text[:50]!r}; choose one of {', '.join(WEIGHTS)}")
    return text


def parse_half_life(text: str) -> int:
    """Return the half-life in ns that a text such as `7d` stands for. Raises WeightingInvalid."""
    found = re.fullmatch(rf"([0-9]{{1,6}})([{''.join(_SECONDS)}])", text)
    if not found or not int(found[1]):
        raise WeightingInvalid(
            f"{text[:50]!r} is not a half-life; write a number from 1 to 999999 and a unit, "
            "s, m, h, d or w, as in 7d"
        )
    return int(found[1]) * _SECONDS[found[2]] * 1_000_000_000


def times_until(now_nanos: int, times: Sequence[int]) -> list[int]:
    """Return the times of profiles in ns since 1970; in place of those after now, the last that isn't.

    A host whose clock is ahead would otherwise outweigh all others. Where all are after now, all are equal.
    """
    latest = max((time for time in times if time and time <= now_nanos), default=min(times, default=0))
    return [time if time <= now_nanos else latest for time in times]


def factors(weighting: Weighting, profiles: Sequence[WeightInput]) -> list[int]:
    """Return the factor of each profile, in units of 2^-32; a factor is at least 1 unit.

    The factors keep the total of all profiles as it is without weights, unless the weighted values of some
    sample type would then add up to more than 2^59: then they add up to 2^59 at most.
    """
    quotients = [
        decay * (numerator << _QUOTIENT_BITS) // denominator if denominator else 0
        for decay, (numerator, denominator) in zip(
            _decays(profiles, weighting.half_life), WEIGHTS[weighting.by](profiles), strict=True
        )
    ]
    if weighting.services:
        quotients = _by_service(dict(weighting.services), quotients, profiles)
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


def _by_sum(profiles: Sequence[WeightInput]) -> _Fractions:
    return [(1, 1)] * len(profiles)


def _by_duration(profiles: Sequence[WeightInput]) -> _Fractions:
    return [(profile.duration_nanos, profile.total) for profile in profiles]


def _by_group(profiles: Sequence[WeightInput]) -> _Fractions:
    totals: Counter[Hashable] = Counter()
    for profile in profiles:
        totals[profile.group] += profile.total
    return [(1, totals[profile.group]) for profile in profiles]


def _by_service(
    weights: Mapping[str, int], quotients: Sequence[int], profiles: Sequence[WeightInput]
) -> list[int]:
    """Return the quotients, scaled so that the weighted total of each service is its weight."""
    totals: Counter[str] = Counter()
    for quotient, profile in zip(quotients, profiles, strict=True):
        totals[profile.service] += quotient * profile.total
    return [
        (quotient * weights[profile.service] << _SERVICE_BITS) // totals[profile.service] if quotient else 0
        for quotient, profile in zip(quotients, profiles, strict=True)
    ]


# Each weight with the function that returns the profiles' fractions, as numerator and denominator. The
# denominator is 0 for profiles without values. Only the ratios of the fractions matter.
LABELS = ("instance", "version")
WEIGHTS: dict[str, Callable[[Sequence[WeightInput]], _Fractions]] = {
    "sum": _by_sum,
    "duration": _by_duration,
    **dict.fromkeys(LABELS, _by_group),
}
PLAIN_WEIGHTING = Weighting()


def _decays(profiles: Sequence[WeightInput], half_life: int) -> list[int]:
    """Return 2^-(age / half-life) of each profile in units of 2^-64; all are equal if there is no half-life.

    Ages count from the newest profile that has values. A profile without a time is as old as the oldest.
    """
    times = [profile.time_nanos for profile in profiles if profile.time_nanos and profile.total]
    if not (half_life and times):
        return [_ONE] * len(profiles)
    oldest, newest = min(times), max(times)
    ages = [max(0, newest - (profile.time_nanos or oldest)) for profile in profiles]
    return [_power_of_half(age, half_life) for age in ages]


def _power_of_half(numerator: int, denominator: int) -> int:
    """Return 2^-(numerator / denominator) in units of 2^-64. The exponent is rounded down to 2^-32."""
    whole, rest = divmod(numerator, denominator)
    bits = (rest << 32) // denominator
    power = _ONE
    for place, powers in enumerate(_powers()):
        power = power * powers[bits >> (24 - 8 * place) & 255] >> 64
    return power >> whole


@cache
def _powers() -> list[list[int]]:
    """Return four tables, one for each byte of a 32-bit fraction, highest first.

    Each has, in units of 2^-64, the power of 1/2 that each of the byte's 256 values stands for.
    """
    root = _ONE // 2
    tables = []
    for _ in range(4):
        table = [_ONE]
        for _ in range(8):
            root = isqrt(root * _ONE)
            # Adding a bit to the fraction keeps every power, and puts a new one after each.
            table = [power for shorter in table for power in (shorter, shorter * root >> 64)]
        tables.append(table)
    return tables
