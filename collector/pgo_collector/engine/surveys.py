"""Surveys: what a worker says of one service for an overview of the fleet, in a bounded amount of work.

Only the leaf of each stack is looked at, so merges are of depth 1. Of a service with very many profiles only
every k-th is read, and counts k times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from pprof_merge import (
    GROUPINGS,
    Budget,
    Grouping,
    Int64s,
    Interval,
    TopTable,
    ValueType,
    count_samples,
    default_column,
    difference_interval,
    share_of,
    trim_after,
)

from pgo_collector.engine.merge_inputs import ChosenBlobs, MergeInputs, read_merge_inputs
from pgo_collector.engine.outputs import refuse_too_large
from pgo_collector.model.times import DAY_NANOS

SURVEYED: tuple[Grouping, ...] = ("function", "package")
# The profiles that are read of one service, and the names that it gives: those with the largest values.
MOST_PROFILES = 500
MOST_NAMES = 100


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
    left_out: int

    @property
    def nbytes(self) -> int:
        """Return about how much memory the names take, in bytes."""
        return sum(len(name) + 100 for table in self.tables.values() for name in table)


@trim_after
def survey_blobs(chosen: ChosenBlobs, weeks: Weeks, budget: Budget) -> Survey:
    """Return the survey of the blobs of a service. Raises AnswerTooLarge."""
    every = -(-len(chosen.blobs) // MOST_PROFILES) or 1
    rows = np.arange(0, len(chosen.blobs), every)
    inputs = read_merge_inputs(ChosenBlobs(chosen.service, chosen.type, chosen.blobs.take(rows)))
    left_out = len(inputs.left_out)
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
        tables={by: _largest(now.tables[by], every) if now else {} for by in SURVEYED},
        change=_change(now, base) if now and base and now.sample_type == base.sample_type else None,
        every=every,
        left_out=left_out,
    )


class _Half(NamedTuple):
    sample_type: ValueType
    samples: int | None
    tables: dict[Grouping, TopTable]


def _half(inputs: MergeInputs, numbers: Int64s, budget: Budget) -> _Half | None:
    """Return the tables of some of the profiles; None if there are none, or they have no sample type."""
    if not len(numbers):
        return None
    profile = inputs.collection.merge(numbers.tolist(), depth=1)
    if not profile.header.sample_types:
        return None
    column = default_column(profile.header)
    tables = {by: TopTable.of(profile, GROUPINGS[by], column=column, budget=budget) for by in SURVEYED}
    return _Half(profile.header.sample_types[column], count_samples(profile, column), tables)


def _largest(table: TopTable, every: int) -> dict[str, int]:
    flat = table.flat[:, 0].tolist()
    rows = [row for row in table.order(0)[:MOST_NAMES] if flat[row] > 0]
    return {table.names[row]: flat[row] * every for row in rows}


def _change(now: _Half, base: _Half) -> Change | None:
    """Return the largest change of a function that isn't noise; None if there is none."""
    sides = []
    for half in (now, base):
        table = half.tables["function"]
        total = int(table.total[0])
        flat = zip(table.names, table.flat[:, 0].tolist(), strict=True)
        sides.append({name: share_of(value, total) for name, value in flat})
    of_now, of_base = sides
    differences = {name: of_now.get(name, 0.0) - of_base.get(name, 0.0) for name in {**of_now, **of_base}}
    for name in sorted(differences, key=lambda name: (-abs(differences[name]), name))[:MOST_NAMES]:
        shares = of_now.get(name, 0.0), of_base.get(name, 0.0)
        interval = difference_interval(shares[0], now.samples, shares[1], base.samples)
        if differences[name] and not (interval and interval.is_noise):
            return Change(name, *shares, interval)
    return None
