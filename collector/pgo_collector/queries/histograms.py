"""Histograms and heat maps: how long the events of latency trackers took, in one service or in all.

The histograms are in the stored profiles: see `pprof_merge.analysis.latency`. A query adds up what the
workers find in each service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pprof_merge.analysis import LatencyHistogram, LatencyTimeline, bucket_bounds, share_of

from pgo_collector.catalog.rows import Blob
from pgo_collector.engine.latencies import HeatMapResult, HistogramResult, heat_blobs, histogram_blobs
from pgo_collector.errors import NotOfThisProfile
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.selection import Selection
from pgo_collector.model.times import format_time
from pgo_collector.queries import answers
from pgo_collector.queries.fleet import Fleet, Found, nothing_readable
from pgo_collector.queries.timelines import Step, Steps, steps_of

# The statistics of no latencies.
_NONE = dict.fromkeys(("average_ns", "min_ns", "max_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns"))


class _Parts:
    """Histograms of a query's services, and the reasons why other services have none."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self.others: dict[str, str] = {}
        self.profiles = 0
        self.left_out: list[LeftOut] = []

    def note(self, service: str, part: HistogramResult | HeatMapResult) -> None:
        """Note the part of a service."""
        self.profiles += part.profiles
        self.left_out += part.left_out
        if part.reason:
            self.others[service] = part.reason

    def check(self) -> None:
        """Raise NotOfThisProfile or NothingToMerge if no service contributed anything."""
        if self.profiles:
            return
        if self.others:
            raise NotOfThisProfile(
                "there are no latencies in the selected profiles, as there are in those of latency trackers:"
                f" {next(iter(self.others.values()))}"
            )
        raise nothing_readable(self._found, [left.reason for left in self.left_out])


@dataclass(frozen=True, slots=True, eq=False)
class FleetHistogram:
    """The histogram of a selection, and the side of an answer that describes it."""

    histogram: LatencyHistogram
    side: answers.HistogramSide
    left_out: list[LeftOut]


async def fleet_histogram(fleet: Fleet, selection: Selection) -> FleetHistogram:
    """Return the histogram of a selection.

    Raises NotOfThisProfile if none of its profiles has latencies, NothingToMerge, AnswerTooLarge,
    BlobsGone or WorkerUnavailable.
    """
    found = await fleet.find(selection)
    parts, whole = _Parts(found), LatencyHistogram.none()
    async for service, part in fleet.run(found, histogram_blobs, lambda *_: ()):
        parts.note(service, part)
        if part.histogram is not None:
            whole += part.histogram
    parts.check()
    side = answers.HistogramSide(
        others=parts.others,
        profiles=parts.profiles,
        left_out=len(parts.left_out),
        coarse=len(found.coarse.blobs),
        coarse_labels=list(found.coarse.labels),
        unlabelled=whole.unlabelled,
        stats=_stats(whole),
        buckets=_buckets(whole),
    )
    return FleetHistogram(whole, side, parts.left_out)


def histogram_of(now: FleetHistogram, base: FleetHistogram | None = None) -> answers.Histogram:
    """Return the answer with a histogram, compared with a base if one is given."""
    if base is None:
        return answers.Histogram(**now.side.model_dump(), base=None, differences=None)
    used = [*now.histogram.used, *base.histogram.used]
    differences = now.histogram.share_differences(base.histogram)
    return answers.Histogram(
        **now.side.model_dump(),
        base=base.side,
        differences=[
            answers.BucketDifference(**_bounds(bucket), difference=differences[bucket])
            for bucket in range(min(used, default=0), max(used, default=-1) + 1)
        ],
    )


async def heat_map(fleet: Fleet, selection: Selection, step: Step) -> tuple[answers.HeatMap, list[LeftOut]]:
    """Return the histogram of each step of time, and the blobs that had to be left out.

    The steps go from the first to the last one with a profile. Raises ParameterInvalid if there are too many,
    and as `fleet_histogram` does.
    """
    found = await fleet.find(selection)
    steps, count = steps_of(found, step)
    parts = _Parts(found)
    whole = LatencyTimeline.none(count)
    coarse: dict[str, int] = {}

    def arguments(selection: Selection, blobs: Sequence[Blob]) -> tuple[dict[str, int], int]:
        coarse[selection.service] = sum(
            blob.id in found.coarse.blobs or not steps.holds(blob) for blob in blobs
        )
        return {str(blob.name): steps.number(blob) for blob in blobs}, count

    async for service, part in fleet.run(found, heat_blobs, arguments):
        parts.note(service, part)
        if part.timeline is not None:
            whole += part.timeline
    parts.check()
    points = await asyncio.to_thread(_points, steps, whole)
    return answers.HeatMap(
        step=step,
        others=parts.others,
        profiles=parts.profiles,
        left_out=len(parts.left_out),
        coarse=sum(coarse.values()),
        coarse_labels=list(found.coarse.labels),
        points=points,
    ), parts.left_out


def _points(steps: Steps, whole: LatencyTimeline) -> list[answers.HeatPoint]:
    """Return the steps with their figures. For many steps this takes a while."""
    return [_point(steps, number, whole.histogram(number)) for number in range(len(whole.counts))]


def _point(steps: Steps, number: int, histogram: LatencyHistogram) -> answers.HeatPoint:
    return answers.HeatPoint(
        time=format_time(steps.begin_of(number)),
        unlabelled=histogram.unlabelled,
        stats=_stats(histogram),
        buckets=[
            answers.HeatCell(**_bounds(bucket), count=count, total_ns=int(histogram.delays[bucket]))
            for bucket in histogram.used
            if (count := int(histogram.counts[bucket]))
        ],
    )


def _stats(histogram: LatencyHistogram) -> answers.LatencyStats:
    used, count = histogram.used, histogram.count
    if not count:
        return answers.LatencyStats(count=0, total_ns=0, **_NONE)
    return answers.LatencyStats(
        count=count,
        total_ns=histogram.delay,
        average_ns=histogram.delay / count,
        min_ns=bucket_bounds(used[0])[0],
        max_ns=bucket_bounds(used[-1])[1],
        p50_ns=histogram.quantile(0.5),
        p90_ns=histogram.quantile(0.9),
        p99_ns=histogram.quantile(0.99),
        p999_ns=histogram.quantile(0.999),
    )


def _buckets(histogram: LatencyHistogram) -> list[answers.HistogramBucket]:
    whole = histogram.count
    return [
        answers.HistogramBucket(
            **_bounds(bucket),
            count=(count := int(histogram.counts[bucket])),
            total_ns=int(histogram.delays[bucket]),
            share=share_of(count, whole),
        )
        for bucket in histogram.used
    ]


def _bounds(bucket: int) -> dict[str, int]:
    lower, upper = bucket_bounds(bucket)
    return {"from_ns": lower, "to_ns": upper}
