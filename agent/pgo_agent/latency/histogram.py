"""Count latencies in buckets of powers of two, over the last minutes and hours."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

# Bucket 0 is for 0 ns; bucket i is for 2^(i-1) up to 2^i ns.
_QUANTILES = {"p50_ns": 0.5, "p90_ns": 0.9, "p99_ns": 0.99, "p999_ns": 0.999}
_SLOT_SECONDS = 10
_HOUR = 3600
_HOURS = 24
MINUTES = (1, 5, 15)


def lower_bound(bucket: int) -> int:
    """Return the shortest latency in a bucket (ns)."""
    return 1 << (bucket - 1) if bucket else 0


def upper_bound(bucket: int) -> int:
    """Return the latency (ns) that all in a bucket are below, and no lower bound of another is."""
    return 1 << bucket


@dataclass(slots=True)
class Histogram:
    """Latencies by bucket. `min` and `max` are in ns, and only mean something if there is any count."""

    counts: dict[int, int] = field(default_factory=dict)
    total: int = 0
    min: int = 0
    max: int = 0

    @property
    def count(self) -> int:
        """Return the number of latencies."""
        return sum(self.counts.values())

    def merge(self, other: Histogram) -> None:
        """Add another histogram."""
        if not other.counts:
            return
        self.min = min(self.min, other.min) if self.counts else other.min
        self.max = max(self.max, other.max)
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.total += other.total

    def quantile(self, share: float) -> float:
        """Return an estimate of the latency (ns) that a `share` of all is no longer than; 0 for none.

        Within a bucket, latencies are taken to be spread evenly, between the extremes.
        """
        rank, below = share * self.count, 0
        for bucket, count in sorted(self.counts.items()):
            if below + count >= rank > below:
                low, high = max(lower_bound(bucket), self.min), min(upper_bound(bucket), self.max)
                return low + max(0, high - low) * (rank - below) / count
            below += count
        return 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the statistics and the buckets that have any count, by the collector's names, in ns."""
        count = self.count
        return {
            "count": count,
            "total_ns": self.total,
            "average_ns": self.total / count if count else None,
            "min_ns": self.min if count else None,
            "max_ns": self.max if count else None,
            **{name: self.quantile(share) if count else None for name, share in _QUANTILES.items()},
            "buckets": [
                {"from_ns": lower_bound(bucket), "to_ns": upper_bound(bucket), "count": number}
                for bucket, number in sorted(self.counts.items())
            ],
        }


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """Return the sum of histograms."""
    together = Histogram()
    for histogram in histograms:
        together.merge(histogram)
    return together


class Windows:
    """Histograms of the last 1, 5 and 15 minutes, of each hour of the last day, and of all time.

    Minutes are kept in slots of 10 seconds, so a window is up to 10 seconds longer than its name. Hours are
    those of the clock. Times are in seconds since 1970, and are expected to rise.
    """

    def __init__(self) -> None:
        self.all = Histogram()
        self._slots: deque[tuple[int, Histogram]] = deque(maxlen=MINUTES[-1] * 60 // _SLOT_SECONDS + 1)
        self._hours: deque[tuple[int, Histogram]] = deque(maxlen=_HOURS + 1)

    def add(self, now: float, histogram: Histogram) -> None:
        """Add what was counted just before `now`."""
        self.all.merge(histogram)
        for slots, length in ((self._slots, _SLOT_SECONDS), (self._hours, _HOUR)):
            number = math.floor(now / length)
            if not slots or slots[-1][0] < number:
                slots.append((number, Histogram()))
            slots[-1][1].merge(histogram)

    def minutes(self, now: float, minutes: int) -> Histogram:
        """Return the histogram of the last 1, 5 or 15 minutes."""
        oldest = math.floor((now - minutes * 60) / _SLOT_SECONDS)
        return merged(histogram for number, histogram in self._slots if number >= oldest)

    def hours(self, now: float) -> Mapping[int, Histogram]:
        """Return the histogram of each hour of the last day, by its beginning (s since 1970)."""
        oldest = math.floor(now / _HOUR) - _HOURS
        return {number * _HOUR: histogram for number, histogram in self._hours if number > oldest}

    def as_json(self, now: float) -> dict[str, Any]:
        """Return all windows."""
        return {
            "minutes": {str(minutes): self.minutes(now, minutes).as_json() for minutes in MINUTES},
            "hours": [
                {"begins": begins, **histogram.as_json()} for begins, histogram in self.hours(now).items()
            ],
        }
