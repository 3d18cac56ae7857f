"""Surveys: what a worker says of one service for an overview of the fleet, in a bounded amount of work.

Only the leaf of each stack is looked at, so merges are of depth 1, unless the profiles drop frames. If a
service has very many profiles, only every k-th is read, and counts k times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
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
    difference_interval,
    share_of,
    stacks_of,
    totals_of,
)
from pprof_merge.arrays import Int64s
from pprof_merge.heap import trim_after

from pgo_collector.engine.merge_inputs import ChosenBlobs
from pgo_collector.engine.outputs import refuse_too_large
from pgo_collector.engine.view_inputs import ADDED_UP, Basis, ViewInputs, read_view_inputs
from pgo_collector.engine.views import column_called
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

    `days` (n_days,) are the totals of the days, `total` is that of this week and `base_total` that of the
    week before: of a state, the mean, and not the sum of the days. `tables` have the flat values of this week
    of the largest names, and `system_names` the mangled ones of these functions, one a line. Only every
    `every`-th profile was read; amounts count so often. `sample_type` is None if there was nothing to read.
    """

    sample_type: ValueType | None
    days: Int64s
    total: int
    base_total: int
    tables: Mapping[Grouping, dict[str, int]]
    change: Change | None
    every: int
    left_out: tuple[LeftOut, ...]
    basis: Basis = ADDED_UP
    system_names: Mapping[str, str] = field(default_factory=dict)


# In place of the survey of a service that takes too much memory.
TOO_LARGE = Survey(None, np.zeros(0, np.int64), 0, 0, {}, None, 1, ())


@trim_after
def survey_blobs(chosen: ChosenBlobs, weeks: Weeks, budget: Budget) -> Survey:
    """Return the survey of the blobs of a service. Raises AnswerTooLarge."""
    every = -(-len(chosen.blobs) // MOST_PROFILES) or 1
    rows = np.arange(0, len(chosen.blobs), every)
    some = replace(chosen, blobs=chosen.blobs.take(rows))
    shown = read_view_inputs(some, column_called(""))
    left_out, n_days = shown.left_out, weeks.end - weeks.base
    if shown.sample_type is None:
        return Survey(None, np.zeros(n_days, np.int64), 0, 0, {}, None, every, left_out)
    day_of = np.clip(shown.inputs.blobs.times // DAY_NANOS, weeks.base, weeks.end - 1) - weeks.base
    is_now = day_of >= weeks.now - weeks.base
    with refuse_too_large("the overview: "):
        now, base = (_half(shown.take(mask), budget) for mask in (is_now, ~is_now))
    # What is held or counted by an instance is so however many of its snapshots are read.
    is_amount = shown.kind == "amount"
    times, divisor = (every, 1) if is_amount else _instances(chosen, shown)
    days = shown.totals_in_steps(day_of, n_days) * times // divisor
    if is_amount:
        base_total, total = (int(part.sum()) for part in np.split(days, [weeks.now - weeks.base]))
    else:
        base_total, total = (half.total * times // divisor if half else 0 for half in (base, now))
    tables = {by: _largest(now.table(by), times, divisor) if now else {} for by in SURVEYED}
    return Survey(
        sample_type=shown.sample_type,
        days=days,
        total=total,
        base_total=base_total,
        tables=tables,
        change=_change(now, base) if now and base and now.sample_type == base.sample_type else None,
        every=every,
        left_out=left_out,
        basis=shown.basis,
        system_names=_bounded(now.system_names if now else {}, tables["function"]),
    )


def _bounded(system_names: Mapping[str, str], functions: Iterable[str]) -> dict[str, str]:
    """Return the system's names of functions, as many as may be kept."""
    named = [(name, system_names[name]) for name in functions if name in system_names]
    sizes = accumulate(len(texts) for _, texts in named)
    return {name: texts for (name, texts), size in zip(named, sizes, strict=True) if size <= _MOST_CHARACTERS}


def _instances(chosen: ChosenBlobs, shown: ViewInputs) -> tuple[int, int]:
    """Return how many instances there are, and of how many snapshots were read."""
    numbers = chosen.blobs.series_numbers, shown.inputs.blobs.series_numbers
    every, read = (len(np.unique(each)) for each in numbers)
    return every, read


class _Half(NamedTuple):
    """The flat values of some of the profiles, of the frames that have one."""

    sample_type: ValueType
    samples: int | None
    total: int
    flat: list[tuple[Frame, int]]
    system_names: Mapping[str, str]

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


def _half(shown: ViewInputs, budget: Budget) -> _Half | None:
    """Return what some of the profiles come to; None if there are none. Raises OutputTooLarge."""
    column = shown.column
    if column is None or shown.header is None:
        return None
    # A leaf that is dropped leaves another, somewhere above it.
    profile = shown.merge(depth=None if shown.header.drop_frames else 1)
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
        system_names=stacks.system_names,
    )


def _largest(table: Mapping[str, int], times: int, divisor: int) -> dict[str, int]:
    """Return the largest values, times a fraction, those of names that are too long in all left out."""
    filled = [name for name, value in table.items() if value]
    largest = sorted(filled, key=lambda name: (-abs(table[name]), name))[:MOST_NAMES]
    sizes = accumulate(map(len, largest))
    return {
        name: table[name] * times // divisor
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
