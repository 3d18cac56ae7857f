"""Roll-ups: old profiles of a series and day become one, so that disk doesn't grow with the fleet.

Where not all labels stay, those of several series do, which differ by no label that stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from itertools import groupby

import structlog

from pgo_collector.catalog.catalog import Catalog, Day
from pgo_collector.catalog.rows import Blob
from pgo_collector.merges.combining import combine_blobs
from pgo_collector.merges.making import Locks
from pgo_collector.model.series import LONGEST_SERIES, Series
from pgo_collector.store.garbage import collect_garbage
from pgo_collector.store.store import Store

_log = structlog.get_logger()


async def roll_up(store: Store, locks: Locks, before_nanos: int, kept_labels: Collection[str]) -> None:
    """Combines, day by day (in UTC), what was taken before a time; all labels stay if none are named.

    Raises NotOfThisProfile, WorkerUnavailable, OSError or SQLAlchemyError.
    """
    groups = await asyncio.to_thread(_crowded, store.catalog, before_nanos, kept_labels)
    for (service, type_), of_owner in groupby(groups, key=lambda days: days[0].series[:2]):
        for days in of_owner:
            async with locks.of(service, type_):
                blobs = await asyncio.to_thread(_live_on, store.catalog, days)
                if len(blobs) > 1:
                    await combine_blobs(store, blobs, kept_labels)
        async with locks.of(service, type_):
            await collect_garbage(store, service, type_)
        _log.info("rolled up", service=service, type=type_)


def _crowded(catalog: Catalog, before_nanos: int, kept_labels: Collection[str]) -> list[list[Day]]:
    """Days of several live blobs together, by service and type: the same day of what becomes one series."""
    counts = dict(catalog.days(before_nanos))

    def place(day: Day) -> tuple[Series, int]:
        return day.series.rolled_up(kept_labels)._replace(dropped=()), day.number

    return [
        days
        for _, of_place in groupby(sorted(counts, key=place), key=place)
        for days in _within_a_path([*of_place], kept_labels)
        if sum(counts[day] for day in days) > 1
    ]


def _within_a_path(days: list[Day], kept_labels: Collection[str]) -> Iterator[list[Day]]:
    """All of them, as far as the series that they become has a path."""
    together: list[Day] = []
    joined = days[0].series.rolled_up(kept_labels)
    for day in days:
        series = day.series.rolled_up(kept_labels)
        if len(joined.merged_with(series).folders) > LONGEST_SERIES and together:
            yield together
            together, joined = [], series
        together.append(day)
        joined = joined.merged_with(series)
    yield together


def _live_on(catalog: Catalog, days: list[Day]) -> list[Blob]:
    """The live blobs of these days, in canonical order."""
    blobs = [blob for day in days for blob in catalog.live_on(day)]
    return sorted(blobs, key=lambda blob: (blob.name.identity, blob.name.series))
