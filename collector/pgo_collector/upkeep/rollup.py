"""Roll-ups: the old profiles of a series and day become one, so that disk doesn't grow with the fleet.

If roll-ups keep only some labels, series that differ in no kept label become one too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

import structlog

from pgo_collector.catalog.catalog import Catalog, Day
from pgo_collector.catalog.database import Owner
from pgo_collector.catalog.rows import Blob
from pgo_collector.merges.combining import combine_blobs
from pgo_collector.model.series import LONGEST_SERIES, Series
from pgo_collector.store.garbage import collect_garbage
from pgo_collector.store.locks import Locks
from pgo_collector.store.store import Store
from pgo_collector.workers.blob_tasks import BlobTasks

# Bytes of a blob's name after the folders of its series: the day, the time, the digest, and the suffix.
_FILE_BYTES = 11 + 21 + 65 + 8
_log = structlog.get_logger()


async def roll_up(
    store: Store,
    tasks: BlobTasks,
    locks: Locks,
    owner: Owner,
    *,
    groups: Iterable[Sequence[Day]],
    kept_labels: Collection[str],
) -> None:
    """Combine each group of days of a service and type; keep all labels if none are named.

    Raises Refusal, OSError or SQLAlchemyError.
    """
    service, type_ = owner
    for days in groups:
        async with locks.changing(service, type_) as lease:
            blobs = await asyncio.to_thread(_live_on, store.catalog, days)
            if len(blobs) > 1:
                await combine_blobs(store, tasks, lease, blobs, kept_labels)
    async with locks.changing(service, type_) as lease:
        await collect_garbage(store, tasks, lease, service, type_)
    _log.info("days rolled up", service=service, type=type_)


def crowded_days(
    store: Store, before_nanos: int, kept_labels: Collection[str]
) -> dict[Owner, list[list[Day]]]:
    """Return groups of UTC days that were over at `before_nanos`, to be combined, by service and type.

    A group is one day of all series that become one series. It has more than one live blob in all.
    """
    counts = dict(store.catalog.days(before_nanos))
    longest = min(LONGEST_SERIES, store.blobs.storage.longest_name - _FILE_BYTES)

    def target(day: Day) -> tuple[Series, int]:
        return day.series.rolled_up(kept_labels)._replace(dropped=()), day.number

    found: dict[Owner, list[list[Day]]] = {}
    for (series, _), of_target in groupby(sorted(counts, key=target), key=target):
        for days in _split_by_path_length([*of_target], kept_labels, longest):
            if sum(counts[day] for day in days) > 1:
                found.setdefault((series.service, series.type), []).append(days)
    return found


def _split_by_path_length(days: list[Day], kept_labels: Collection[str], longest: int) -> Iterator[list[Day]]:
    """Yield the days in groups, each of which becomes a series whose path isn't longer than `longest`."""
    together: list[Day] = []
    joined = days[0].series.rolled_up(kept_labels)
    for day in days:
        series = day.series.rolled_up(kept_labels)
        if len(joined.merged_with(series).folders) > longest and together:
            yield together
            together, joined = [], series
        together.append(day)
        joined = joined.merged_with(series)
    yield together


def _live_on(catalog: Catalog, days: Sequence[Day]) -> list[Blob]:
    """Return the live blobs of days, in canonical order."""
    blobs = [blob for day in days for blob in catalog.live_on(day)]
    return sorted(blobs, key=lambda blob: (blob.name.identity, blob.name.series))
