"""Latencies: the histograms in the profiles of latency trackers, as workers compute them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pprof_merge import Budget, ProfileError
from pprof_merge.analysis import N_BUCKETS, LatencyHistogram, LatencyTimeline
from pprof_merge.heap import trim_after

from pgo_collector.engine.merge_inputs import ChosenBlobs, read_merge_inputs
from pgo_collector.engine.outputs import refuse_too_large, server_budget
from pgo_collector.model.facts import LeftOut

# Bytes of a step: the count and the delay of each bucket, and the count of what has no latency.
_STEP_BYTES = 16 * (N_BUCKETS + 1)


@dataclass(frozen=True, slots=True)
class HistogramResult:
    """The histogram of a merge, and the number of profiles in it.

    It is None if there was nothing to merge or if the profiles have none, for which `reason` is then given.
    """

    histogram: LatencyHistogram | None
    profiles: int
    left_out: tuple[LeftOut, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class HeatMapResult:
    """The histogram of each step of time; otherwise as in `HistogramResult`."""

    timeline: LatencyTimeline | None
    profiles: int
    left_out: tuple[LeftOut, ...]
    reason: str = ""


@trim_after
def histogram_blobs(chosen: ChosenBlobs, budget: Budget) -> HistogramResult:
    """Return the histogram of the merge of blobs. Raises AnswerTooLarge."""
    inputs = read_merge_inputs(chosen)
    if not len(inputs.numbers):
        return HistogramResult(None, 0, inputs.left_out)
    with refuse_too_large("the histogram: "):
        server_budget(budget).check(_STEP_BYTES)
    merged = inputs.merge()
    try:
        found = LatencyHistogram.of(merged)
    except ProfileError as error:
        return HistogramResult(None, 0, inputs.left_out, str(error))
    return HistogramResult(found, len(inputs.numbers), inputs.left_out)


@trim_after
def heat_blobs(chosen: ChosenBlobs, steps: Mapping[str, int], n_steps: int, budget: Budget) -> HeatMapResult:
    """Return the histograms of `n_steps` steps; `steps` has the number of each blob's step, by its name.

    Raises AnswerTooLarge.
    """
    inputs = read_merge_inputs(chosen)
    if not len(inputs.numbers):
        return HeatMapResult(None, 0, inputs.left_out)
    with refuse_too_large("the heat map: "):
        server_budget(budget).check_rows(n_steps, _STEP_BYTES, "use a longer step, or select less time")
    numbers, own_steps = inputs.numbers.tolist(), [steps[blob] for blob in inputs.names]
    try:
        found = LatencyTimeline.of(inputs.collection, numbers, own_steps, n_steps)
    except ProfileError as error:
        return HeatMapResult(None, 0, inputs.left_out, str(error))
    return HeatMapResult(found, len(inputs.numbers), inputs.left_out)
