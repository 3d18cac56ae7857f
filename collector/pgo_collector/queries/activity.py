"""Activity: the number of a selection's profiles and the total that they measured, over the time that it has.

The totals are made by a worker from its rows, and kept as long as the profiles are the same.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass

from pgo_collector.catalog.summaries import Summaries, Summary
from pgo_collector.engine.views import TOO_MANY, EqualSteps, total_steps
from pgo_collector.errors import WorkerUnavailable
from pgo_collector.model.selection import Selection
from pgo_collector.queries import answers
from pgo_collector.queries.fleet import Fleet

SECOND = 10**9
_DAY = 86_400
_MOST_STEPS = 120
# The lengths of steps in seconds; longer ones are doubled.
_WIDTHS = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10_800, 21_600, 43_200, _DAY, 2 * _DAY, 7 * _DAY),
)  # fmt: skip
_EARLIEST = -(1 << 63)


@dataclass(frozen=True, slots=True)
class Activity:
    """Steps of `width` ns from `begin` on, in ns since 1970: the profiles, and the total, of each.

    A combined profile is in the step in which it begins. `totals` is None where they aren't known: no worker
    answered, or the profiles take too much memory. They are without `left_out` profiles, which can't be read.
    """

    begin: int
    width: int
    profiles: list[int]
    totals: list[int] | None
    sample_type: answers.SampleType | None
    left_out: int = 0

    @property
    def end(self) -> int:
        """Return when the last step ends, in ns since 1970."""
        return self.begin + self.width * len(self.profiles)


class Activities:
    """Makes the activity of selections."""

    def __init__(self, fleet: Fleet, summaries: Summaries) -> None:
        self._fleet = fleet
        self._summaries = summaries

    async def make(self, selection: Selection, summary: Summary, sample_type: str = "") -> Activity:
        """Return the activity over the time of a selection, or of its profiles where it has no bound.

        The totals are of a sample type; without one, of that which `go tool pprof` shows.
        """
        steps = steps_of(*_time_of(selection, summary), _MOST_STEPS)
        asked = sample_type, steps

        async def made() -> Activity:
            counts = await self._counts(selection, steps)
            running = self._fleet.run_each([selection], total_steps, lambda *_: asked, if_too_large=TOO_MANY)
            async with aclosing(running) as results:
                ((_, found),) = [result async for result in results]
            totals = None if found.totals is None else found.totals.tolist()
            of = None if found.sample_type is None else answers.SampleType.of(found.sample_type)
            return Activity(steps.begin, steps.width, counts, totals, of, len(found.left_out))

        try:
            return await self._fleet.kept.answer(
                ("activity", asked), [selection], made, lambda activity: not activity.left_out
            )
        except WorkerUnavailable:
            counts = await self._counts(selection, steps)
            return Activity(steps.begin, steps.width, counts, None, None)

    async def _counts(self, selection: Selection, steps: EqualSteps) -> list[int]:
        """Return the number of profiles in each step."""
        found = await asyncio.to_thread(self._summaries.steps, selection, steps.begin, steps.width)
        counts = [0] * steps.number
        for number, profiles in found.items():
            counts[min(max(number, 0), steps.number - 1)] += profiles
        return counts


def steps_of(begin: int, last: int, most: int) -> EqualSteps:
    """Return the shortest steps of which at most `most` have both times in them, in ns since 1970.

    Steps begin with whole seconds, minutes, hours or days.
    """
    widths = [seconds * SECOND for seconds in _WIDTHS]
    while True:
        for width in widths:
            first = begin // width
            if (count := last // width - first + 1) <= most:
                return EqualSteps(max(first * width, _EARLIEST), width, count)
        widths = [widths[-1] * 2]


def _time_of(selection: Selection, summary: Summary) -> tuple[int, int]:
    """Return the first and the last moment of a selection, in ns since 1970."""
    begin = summary.begin_nanos if selection.begin is None else selection.begin
    if selection.end is not None:
        return min(begin, selection.end - 1), selection.end - 1
    # From a begin on, it is a time that ends now.
    return begin, summary.end_nanos if selection.begin is None else max(summary.end_nanos, time.time_ns())
