"""Timelines: steps of time, and the share of a function or package in each, in one service or in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType
from typing import Literal

import numpy as np
from pprof_merge import ValueType
from pprof_merge.analysis import share_of
from pprof_merge.arrays import Int64s

from pgo_collector.catalog.rows import Blob
from pgo_collector.engine.view_inputs import Basis
from pgo_collector.engine.views import TimelineResult, time_blobs
from pgo_collector.errors import ParameterInvalid
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.selection import USUAL, Focus, Selection
from pgo_collector.model.times import format_time
from pgo_collector.queries import answers
from pgo_collector.queries.fleet import Fleet, Found, chosen_type, nothing_readable, others

Step = Literal["minute", "hour", "day"]
Subject = Literal["function", "package"]

STEPS: Mapping[Step, int] = MappingProxyType(
    {"minute": 60 * 10**9, "hour": 3600 * 10**9, "day": 86400 * 10**9}
)
MAX_STEPS = 1000


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of time: `width` ns from a whole minute, hour or day on.

    `begin` is that of the selection (Unix, ns). Steps are counted from 1970; `first` is the one that has
    number 0 in an answer.
    """

    width: int
    begin: int
    first: int = 0

    def number(self, blob: Blob) -> int:
        """Return the number of a blob's step; a blob that begins before the selection is in the first."""
        return self.step_of(blob.name.identity.time_nanos) - self.first

    def holds(self, blob: Blob) -> bool:
        """Return whether all profiles in a blob are in one step."""
        return self.step_of(blob.name.identity.time_nanos) == self.step_of(blob.end_nanos)

    def begin_of(self, number: int) -> int:
        """Return when the step with this number in an answer begins, in ns since 1970."""
        return (self.first + number) * self.width

    def step_of(self, time_nanos: int) -> int:
        """Return the step of a time, counted from 1970; a time before the selection is in its first step."""
        return max(time_nanos, self.begin) // self.width


async def time_series(
    fleet: Fleet,
    selection: Selection,
    by: Subject,
    name: str,
    step: Step,
    *,
    focus: Focus = USUAL,
) -> tuple[answers.TimeSeries, list[LeftOut]]:
    """Return the steps from the first to the last one with a profile, and the blobs that had to be left out.

    Raises ParameterInvalid if there are more than MAX_STEPS steps, NothingToMerge, BlobsGone or
    WorkerUnavailable.
    """
    found = await fleet.find(selection)
    steps, count = steps_of(found, step)
    coarse: dict[str, int] = {}
    sums: dict[ValueType, Int64s] = {}
    measured: dict[str, tuple[ValueType, int, Basis]] = {}
    kinds: dict[ValueType, tuple[ValueType, ...]] = {}
    left_out: list[LeftOut] = []

    def arguments(
        selection: Selection, blobs: Sequence[Blob]
    ) -> tuple[dict[str, int], tuple[Subject, str], Focus]:
        coarse[selection.service] = sum(
            blob.id in found.coarse.blobs or not steps.holds(blob) for blob in blobs
        )
        return {str(blob.name): steps.number(blob) for blob in blobs}, (by, name), focus

    def add(service: str, timed: TimelineResult) -> None:
        left_out.extend(timed.left_out)
        if timed.steps is not None and timed.sample_type is not None:
            measured[service] = timed.sample_type, timed.profiles, timed.basis
            kinds[timed.sample_type] = max(kinds.get(timed.sample_type, ()), timed.sample_types)
            total = sums.setdefault(timed.sample_type, np.zeros((count, 3), np.int64))
            total[: len(timed.steps)] += timed.steps

    async for service, timed in fleet.run(found, time_blobs, arguments):
        add(service, timed)
    if not measured:
        raise nothing_readable(found, [left.reason for left in left_out])
    types = {service: sample_type for service, (sample_type, *_) in measured.items()}
    chosen = chosen_type(types, focus)
    counted = [each for each in measured.values() if each[0] == chosen]
    return answers.TimeSeries(
        by=by,
        name=name,
        step=step,
        sample_type=answers.SampleType.of(chosen),
        sample_types=[*map(answers.SampleType.of, kinds[chosen])],
        others=others(types, chosen),
        basis=answers.ValuesBasis.of(reduce(Basis.joined, [basis for *_, basis in counted]), chosen),
        profiles=sum(profiles for _, profiles, _ in counted),
        left_out=len(left_out),
        coarse=sum(coarse.values()),
        coarse_labels=list(found.coarse.labels),
        points=[
            answers.SeriesPoint(
                time=format_time(steps.begin_of(number)),
                total=total,
                flat=flat,
                cum=cum,
                flat_share=share_of(flat, total),
                cum_share=share_of(cum, total),
            )
            for number, (total, flat, cum) in enumerate(sums[chosen].tolist())
        ],
    ), left_out


def steps_of(found: Found, step: Step) -> tuple[Steps, int]:
    """Return the steps and their number. Raises ParameterInvalid if there are more than MAX_STEPS."""
    steps = Steps(STEPS[step], found.begin)
    first = steps.step_of(found.begin)
    count = steps.step_of(found.last) - first + 1
    if count > MAX_STEPS:
        raise ParameterInvalid(
            f"step={step}: the profiles span {count:,} {step}s, and at most {MAX_STEPS:,} are allowed;"
            " use a longer step, or select less time with from, to or last"
        )
    return replace(steps, first=first), count
