"""Samples taken meanwhile: the stored profiles that were being taken while a traced request ran."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from pprof_merge.analysis import FlameView
from pprof_merge.merging import RequestIds

from pgo_collector.catalog.inventory import Inventory
from pgo_collector.errors import Refusal
from pgo_collector.model.ids import Ids
from pgo_collector.model.profile_types import CPU, PROCESS_CPU, WALL
from pgo_collector.model.selection import Selection
from pgo_collector.queries.flames import flame_of
from pgo_collector.queries.fleet import Fleet

# What shows where time went, the first first.
_TYPES = (CPU, PROCESS_CPU, WALL)
# Longer profiles, and more of them than these, aren't looked at.
_LONGEST_NANOS = 3600 * 10**9
_MOST_PROFILES = 100


async def samples_meanwhile(
    fleet: Fleet, inventory: Inventory, services: Iterable[str], trace: str, when: tuple[int, int]
) -> Selection | None:
    """Return the profiles of the first of some services that were being taken in a range of time.

    It is in ns since 1970, with its end. If samples in them have the trace's id, only these are selected.
    None stands for no profile. A combined profile isn't of that time alone, and doesn't count.
    """
    begin, end = when
    for service in services:
        for type_ in _TYPES:
            around = Selection(service, type_, begin=begin - _LONGEST_NANOS, end=end + 1)
            stored = await asyncio.to_thread(inventory.profiles, around, _MOST_PROFILES)
            times = [
                each.name.identity.time_nanos
                for each in stored
                if not each.is_combined and each.name.identity.time_nanos + each.duration_nanos >= begin
            ]
            if times:
                found = replace(around, begin=min(times))
                of_trace = replace(found, ids=Ids(requests=RequestIds(traces=(trace,))))
                return of_trace if await _has_samples(fleet, of_trace) else found
    return None


async def _has_samples(fleet: Fleet, selection: Selection) -> bool:
    """Return whether there are samples in a selection; none are in what can't be read."""
    with suppress(Refusal):
        flame = await flame_of(fleet, selection, FlameView(most=1))
        return bool(flame.graph.size[0].any())
    return False
