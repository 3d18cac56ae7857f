"""Noise: how far apart two shares of sampled profiles may be although nothing has changed.

A sampling profiler counts samples, so a share of a profile is a proportion that was estimated from some
samples, and the difference of two shares has an interval. It is Newcombe's hybrid score interval (Statistics
in Medicine 17, 1998, method 10), made of two Wilson intervals: unlike the interval of the two-proportion z
test it holds for shares near 0, which most functions have, and never leaves [-1, 1].

Samples are taken to be independent. What differs from host to host, or from hour to hour, comes on top.
"""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

from pprof_merge.analysis.totals import totals_of
from pprof_merge.profile import Profile, ValueType

# Tables have up to a thousand rows: of 100 that have not changed, about 1 is taken for changed.
CONFIDENCE = 0.99
_Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
_SAMPLES = ValueType(b"samples", b"count")


class Interval(NamedTuple):
    """The differences of two shares, each from -1 to 1, that the samples are compatible with."""

    low: float
    high: float

    @property
    def is_noise(self) -> bool:
        """Return whether the shares may well be the same."""
        return self.low <= 0 <= self.high


def count_samples(profile: Profile, column: int) -> int | None:
    """Return how many samples a profiler took for the values of one sample type; None if that isn't known.

    It is the total of `samples/count` where the profile has it. Else it is the value over the period, where
    both have one unit, as in a heap profile's `inuse_space/bytes` with a period of 512 KiB. Other values,
    such as delays of contended locks or numbers of objects, don't say how many samples are behind them. A
    period of 1, as latency trackers state it, means that nothing is sampled.
    """
    header, totals = profile.header, totals_of(profile)
    if _SAMPLES in header.sample_types:
        return max(0, int(totals[header.sample_types.index(_SAMPLES)]))
    unit = header.sample_types[column].unit
    if header.period <= 1 or unit != header.period_type.unit or unit == b"count":
        return None
    return max(0, int(totals[column]) // header.period)


def difference_interval(now: float, n_now: int | None, base: float, n_base: int | None) -> Interval | None:
    """Return the interval of the difference `now - base` of two shares, of `n_now` and `n_base` samples.

    It is None if either number of samples is 0 or unknown.
    """
    if not n_now or not n_base:
        return None
    difference = now - base
    now_low, now_high = _wilson(now, n_now)
    base_low, base_high = _wilson(base, n_base)
    return Interval(
        max(-1.0, difference - sqrt((now - now_low) ** 2 + (base_high - base) ** 2)),
        min(1.0, difference + sqrt((now_high - now) ** 2 + (base - base_low) ** 2)),
    )


def _wilson(share: float, n: int) -> tuple[float, float]:
    """Return Wilson's score interval of a share of n samples; the share is in it."""
    share = min(1.0, max(0.0, share))
    square = _Z * _Z / n
    centre = share + square / 2
    spread = _Z * sqrt((share * (1 - share) + square / 4) / n)
    low, high = (centre - spread) / (1 + square), (centre + spread) / (1 + square)
    return max(0.0, min(low, share)), min(1.0, max(high, share))
