"""Latencies: histograms of profiles whose samples have a latency, and the samples in a range of latencies.

A latency tracker writes ordinary profiles with the sample types `contentions/count` and `delay/nanoseconds`.
Each sample has the numeric label `latency`, in nanoseconds: the lower bound of the bucket that its events
are in. Buckets are powers of two, so a histogram is in the profile itself, and a merge adds histograms up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Self

import numpy as np

from pprof_merge.analysis.diff import share_of
from pprof_merge.arrays import Bools, Int64s, Ints
from pprof_merge.columns.ragged import rows_of_indexes
from pprof_merge.errors import ProfileError
from pprof_merge.merging.batch import merge
from pprof_merge.merging.collection import Collection
from pprof_merge.profile import Header, Profile, ValueType

LATENCY_KEY = b"latency"
LATENCY_UNIT = b"nanoseconds"
CONTENTIONS = ValueType(b"contentions", b"count")
DELAY = ValueType(b"delay", b"nanoseconds")

# The lower bounds of all buckets, in ns: 0, 1, 2, 4, … 2^62. A bucket ends where the next one begins.
_LOWER = np.array([0, *(1 << power for power in range(63))], np.int64)
N_BUCKETS = len(_LOWER)
# Stands for the bucket of a sample without a latency.
_NONE = -1


class LatencyRange(NamedTuple):
    """Latencies from `begin` on and below `end`, in ns; None is no bound. Without bounds it has all samples,
    those without a latency too.
    """

    begin: int | None = None
    end: int | None = None

    @property
    def is_everything(self) -> bool:
        """Return whether there is no bound."""
        return self.begin is None and self.end is None


ALL_LATENCIES = LatencyRange()


def bucket_bounds(bucket: int) -> tuple[int, int]:
    """Return the lower bound of a bucket, and the upper bound, which isn't in it; both in ns."""
    lower = int(_LOWER[bucket])
    return lower, 2 * lower or 1


@dataclass(frozen=True, slots=True, eq=False)
class LatencyHistogram:
    """The number of events and the sum of their delays in ns, bucket by bucket: (N_BUCKETS) each.

    `unlabelled` is the number of events without a latency, which are in no bucket. Sums wrap at 64 bits, as
    all sums of profiles do; negative ones count as 0.
    """

    counts: Int64s
    delays: Int64s
    unlabelled: int

    @classmethod
    def of(cls, profile: Profile) -> Self:
        """Return the histogram of a profile. Raises ProfileError if it doesn't measure what trackers do."""
        columns = latency_columns(profile.header)
        sums = _sums(_buckets(profile), profile.samples.values[:, columns])
        counts, delays = np.maximum(sums[:N_BUCKETS].T, 0)
        return cls(counts, delays, max(int(sums[_NONE, 0]), 0))

    @classmethod
    def none(cls) -> Self:
        """Return the histogram of no event."""
        return cls(np.zeros(N_BUCKETS, np.int64), np.zeros(N_BUCKETS, np.int64), 0)

    def __add__(self, other: LatencyHistogram) -> LatencyHistogram:
        """Return the histogram of the events of both."""
        return LatencyHistogram(
            np.maximum(self.counts + other.counts, 0),
            np.maximum(self.delays + other.delays, 0),
            self.unlabelled + other.unlabelled,
        )

    @property
    def count(self) -> int:
        """Return the number of events in all buckets."""
        return sum(self.counts.tolist())

    @property
    def delay(self) -> int:
        """Return the sum of the delays in all buckets, in ns."""
        return sum(self.delays.tolist())

    @property
    def used(self) -> range:
        """Return the buckets from the first to the last one with an event."""
        filled = np.flatnonzero(self.counts).tolist()
        return range(filled[0], filled[-1] + 1) if filled else range(0)

    def quantile(self, share: float) -> float:
        """Return the latency in ns below which this share of the events is, from 0 to 1; 0 without events.

        Inside a bucket, latencies count as spread evenly on a logarithmic scale. So the result is at most
        twice, and at least half, of the exact one.
        """
        target, before, value = share * self.count, 0, 0.0
        for bucket, (count, up_to) in enumerate(
            zip(self.counts.tolist(), accumulate(self.counts.tolist()), strict=True)
        ):
            if count:
                lower, _ = bucket_bounds(bucket)
                part = min(max((target - before) / count, 0.0), 1.0)
                value = lower * 2.0**part if lower else part
                if up_to >= target:
                    break
            before = up_to
        return value

    def share_differences(self, base: LatencyHistogram) -> list[float]:
        """Return, bucket by bucket, the share of the events here minus the share in a base."""
        here, there = self.count, base.count
        return [
            share_of(now, here) - share_of(before, there)
            for now, before in zip(self.counts.tolist(), base.counts.tolist(), strict=True)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class LatencyTimeline:
    """The histograms of steps of time, as in `LatencyHistogram`.

    `counts` and `delays` are (n_steps, N_BUCKETS), `unlabelled` is (n_steps).
    """

    counts: Int64s
    delays: Int64s
    unlabelled: Int64s

    @classmethod
    def of(
        cls, collection: Collection, numbers: Sequence[int], steps: Sequence[int], n_steps: int
    ) -> LatencyTimeline:
        """Return the timeline of some profiles of a collection; `steps` has the step of each, from 0 on.

        Raises as `Collection.merge_traced` does, and ProfileError as `LatencyHistogram.of` does.
        """
        merged, contributions = collection.merge_traced(numbers)
        columns = latency_columns(merged.header)
        # The index -1 refers to the last entry: a contribution has it for values that add up to 0.
        buckets = np.append(_buckets(merged), _NONE)
        sums = np.zeros((n_steps, N_BUCKETS + 1, 2), np.int64)
        for step, contribution in zip(steps, contributions, strict=True):
            sums[step] += _sums(buckets[contribution.samples], contribution.values[:, columns])
        np.maximum(sums, 0, out=sums)
        return cls(sums[:, :N_BUCKETS, 0], sums[:, :N_BUCKETS, 1], sums[:, _NONE, 0])

    @classmethod
    def none(cls, n_steps: int) -> Self:
        """Return the timeline of no event."""
        shape = (n_steps, N_BUCKETS)
        return cls(np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(n_steps, np.int64))

    def __add__(self, other: LatencyTimeline) -> LatencyTimeline:
        """Return the timeline of the events of both, which must have the same steps."""
        return LatencyTimeline(
            np.maximum(self.counts + other.counts, 0),
            np.maximum(self.delays + other.delays, 0),
            np.maximum(self.unlabelled + other.unlabelled, 0),
        )

    def histogram(self, step: int) -> LatencyHistogram:
        """Return the histogram of a step."""
        return LatencyHistogram(self.counts[step], self.delays[step], int(self.unlabelled[step]))


def latency_columns(header: Header) -> list[int]:
    """Return the columns of the events and of their delays.

    Raises ProfileError if the profile lacks one.
    """
    try:
        return [header.sample_types.index(wanted) for wanted in (CONTENTIONS, DELAY)]
    except ValueError:
        measured = ", ".join(map(str, header.sample_types)) or "nothing"
        raise ProfileError(f"it measures {measured}, not {CONTENTIONS} and {DELAY}") from None


def focus_latency(profile: Profile, wanted: LatencyRange) -> Profile:
    """Return a profile with the samples in a range of latencies, and with nothing that only others use.

    It is what `go tool pprof -tagfocus=latency=…` takes: a sample is in the range if the value of its label
    is. So a bucket counts by its lower bound, also where the range begins or ends inside the bucket.
    """
    if wanted.is_everything:
        return profile
    rows = np.flatnonzero(samples_in(profile, wanted))
    return merge([profile.replace(samples=profile.samples.take(rows))])


def samples_in(profile: Profile, wanted: LatencyRange) -> Bools:
    """Return whether each sample of a profile is in a range of latencies, (n_samples)."""
    if wanted.is_everything:
        return np.ones(len(profile.samples), np.bool_)
    numbers, at = _latencies(profile)
    is_in = np.ones(len(numbers), np.bool_)
    if wanted.begin is not None:
        is_in &= numbers >= wanted.begin
    if wanted.end is not None:
        is_in &= numbers < wanted.end
    found = np.zeros(len(profile.samples), np.bool_)
    found[rows_of_indexes(profile.samples.labels.offsets, at[is_in])] = True
    return found


def _latencies(profile: Profile) -> tuple[Int64s, Int64s]:
    """Return the values of all labels that are a latency, and their indexes among the labels."""
    labels = profile.samples.labels
    is_latency = _is_one_of(labels.key, profile, LATENCY_KEY) & _is_one_of(labels.unit, profile, LATENCY_UNIT)
    at = np.flatnonzero(is_latency & (labels.text < 0) & (labels.number >= 0))
    return labels.number[at], at


def _is_one_of(column: Ints, profile: Profile, text: bytes) -> Bools:
    """Return whether each entry of a column is a row of this text; a decoded profile may have several."""
    return np.isin(column, [row for row, string in enumerate(profile.strings) if string == text])


def _buckets(profile: Profile) -> Int64s:
    """Return the bucket of each sample, (n_samples); of several latencies the longest counts."""
    numbers, at = _latencies(profile)
    found = np.full(len(profile.samples), _NONE)
    rows = rows_of_indexes(profile.samples.labels.offsets, at)
    np.maximum.at(found, rows, np.searchsorted(_LOWER, numbers, side="right") - 1)
    return found


def _sums(buckets: Int64s, values: Int64s) -> Int64s:
    """Return the sums of values (n, 2) in each bucket (n): (N_BUCKETS + 1, 2), the last without a latency."""
    sums = np.zeros((N_BUCKETS + 1, 2), np.int64)
    np.add.at(sums, buckets, np.maximum(values, 0))
    return sums
