"""Surveys: what a worker says of one service for an overview of the fleet, in a bounded amount of work.

Only the leaf of each stack is looked at, so merges are of depth 1, unless the profiles drop frames. If a
service has very many profiles, only every k-th is read, and counts k times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from pprof_merge import Budget, ValueType
from pprof_merge.analysis import (
    NAMES_OF_FRAMES,
    Frame,
    Grouping,
    Interval,
    count_samples,
    default_column,
    difference_interval,
    share_of,
    stacks_of,
    totals_of,
)
from pprof_merge.arrays import Int64s
from pprof_merge.heap import trim_after

from pgo_collector.engine.merge_inputs import ChosenBlobs, MergeInputs, read_merge_inputs
from pgo_collector.engine.outputs import refuse_too_large
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.times import DAY_NANOS

SURVEYED: tuple[Grouping, ...] = ("function", "package")
# The profiles that are read of one service, and the names that it gives: those with the largest values.
MOST_PROFILES = 500
MOST_NAMES = 100
# The characters of all names of a table together: the server's process holds the surveys of many services.
_MOST_CHARACTERS = 50_000


class Weeks(NamedTuple):
    """Two spans of whole UTC days, the base and what is now: the first day of each, and the day after both.

    Days are counted from 1970.
    """

    base: int
    now: int
    end: int


@dataclass(frozen=True, slots=True)
class Change:
    """The function whose flat share of the service has changed most, beyond the noise."""

    name: str
    now_share: float
    base_share: float
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Survey:
    """The values of one sample type of a service.

    `days` (n_days,) are the totals of the days. `tables` have the flat values of this week of the largest
    names. Only every `every`-th profile was read, and counts so often. `sample_type` is None if there was
    nothing to read.
    """

    sample_type: ValueType | None
    days: Int64s
    tables: Mapping[Grouping, dict[str, int]]
    change: Change | None
    every: int
    left_out: tuple[LeftOut, ...]


# In place of the survey of a service that takes too much memory.
TOO_LARGE = Survey(None, np.zeros(0, np.int64), {}, None, 1, ())


@trim_after
def survey_blobs(chosen: ChosenBlobs, weeks: Weeks, budget: Budget) -> Survey:
    """Return the survey of the blobs of a service. Raises AnswerTooLarge."""
    every = -(-len(chosen.blobs) // MOST_PROFILES) or 1
    rows = np.arange(0, len(chosen.blobs), every)
    inputs = read_merge_inputs(ChosenBlobs(chosen.service, chosen.type, chosen.blobs.take(rows)))
    left_out = inputs.left_out
    days = np.zeros(weeks.end - weeks.base, np.int64)
    day_of = np.clip(inputs.blobs.times // DAY_NANOS, weeks.base, weeks.end - 1) - weeks.base
    is_now = day_of >= weeks.now - weeks.base
    with refuse_too_large("the overview: "):
        halves = [_half(inputs, inputs.numbers[mask], budget) for mask in (is_now, ~is_now)]
    sample_type = next((half.sample_type for half in halves if half is not None), None)
    if sample_type is None:
        return Survey(None, days, {}, None, every, left_out)
    np.add.at(days, day_of, inputs.collection.totals(inputs.numbers.tolist(), sample_type) * every)
    now, base = halves
    return Survey(
        sample_type=sample_type,
        days=days,
        tables={by: _largest(now.table(by), every) if now else {} for by in SURVEYED},
        change=_change(now, base) if now and base and now.sample_type == base.sample_type else None,
        every=every,
        left_out=left_out,
    )


class _Half(NamedTuple):
    """The flat values of some of the profiles, of the frames that have one."""

    sample_type: ValueType
    samples: int | None
    total: int
    flat: list[tuple[Frame, int]]

    def table(self, by: Grouping) -> dict[str, int]:
        """Return the values by the names that a grouping gives the frames."""
        name_of = NAMES_OF_FRAMES[by]
        table: dict[str, int] = {}
        for frame, value in self.flat:
            name = name_of(frame)
            table[name] = table.get(name, 0) + value
        return table

    def shares(self) -> dict[str, float]:
        """Return the shares of the functions."""
        return {name: share_of(value, self.total) for name, value in self.table("function").items()}


def _half(inputs: MergeInputs, numbers: Int64s, budget: Budget) -> _Half | None:
    """Return what some of the profiles add up to; None if there are none, or they have no sample type.

    Raises OutputTooLarge.
    """
    if not len(numbers):
        return None
    profile = inputs.collection.merge(numbers.tolist(), depth=1)
    if profile.header.drop_frames:  # a leaf that is dropped leaves another, somewhere above it
        profile = inputs.collection.merge(numbers.tolist())
    if not profile.header.sample_types:
        return None
    column = default_column(profile.header)
    values = profile.samples.values[:, column]
    stacks = stacks_of(profile, budget)
    flat = np.zeros(len(stacks.frames) + 1, np.int64)  # the last is that of samples without a stack
    np.add.at(flat, stacks.leaves(), values)
    seen = np.flatnonzero(flat[:-1])
    return _Half(
        sample_type=profile.header.sample_types[column],
        samples=count_samples(profile, column),
        total=int(totals_of(profile)[column]),
        flat=[
            (stacks.frames[row], value) for row, value in zip(seen.tolist(), flat[seen].tolist(), strict=True)
        ],
    )


def _largest(table: Mapping[str, int], every: int) -> dict[str, int]:
    """Return the largest values, those of names that are too long in all left out."""
    filled = [name for name, value in table.items() if value]
    largest = sorted(filled, key=lambda name: (-abs(table[name]), name))[:MOST_NAMES]
    sizes = accumulate(map(len, largest))
    return {
        name: table[name] * every
        for name, size in zip(largest, sizes, strict=True)
        if size <= _MOST_CHARACTERS
    }


def _change(now: _Half, base: _Half) -> Change | None:
    """Return the largest change of a function that isn't noise; None if there is none."""
    of_now, of_base = now.shares(), base.shares()
    differences = {name: of_now.get(name, 0.0) - of_base.get(name, 0.0) for name in {**of_now, **of_base}}
    for name in sorted(differences, key=lambda name: (-abs(differences[name]), name))[:MOST_NAMES]:
        shares = of_now.get(name, 0.0), of_base.get(name, 0.0)
        interval = difference_interval(shares[0], now.samples, shares[1], base.samples)
        if differences[name] and not (interval and interval.is_noise):
            return Change(name, *shares, interval)
    return None
