"""Roll-ups: old profiles of a series and day become one, so that disk doesn't grow with the fleet."""

from __future__ import annotations

import asyncio
from itertools import groupby

import structlog

from pgo_collector.merges.combining import combine_blobs
from pgo_collector.merges.locks import Locks
from pgo_collector.merges.tidying import tidy
from pgo_collector.store.store import Store

_log = structlog.get_logger()


async def roll_up(store: Store, locks: Locks, before_nanos: int) -> None:
    """Combines, day by day (in UTC), what was taken before a time.

    Raises NotOfThisProfile, WorkerLost, OSError or SQLAlchemyError.
    """
    days = await asyncio.to_thread(store.catalog.crowded_days, before_nanos)
    for (service, type_), of_owner in groupby(days, key=lambda day: day.series[:2]):
        for day in of_owner:
            async with locks.of(service, type_):
                blobs = await asyncio.to_thread(store.catalog.live_on, day)
                if len(blobs) > 1:
                    await combine_blobs(store, day.series, blobs)
        async with locks.of(service, type_):
            await tidy(store, service, type_)
        _log.info("rolled up", service=service, type=type_)
