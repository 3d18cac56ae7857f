"""Retention: delete profiles by age and by total size, with separate bounds for single and combined ones."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

import structlog

from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.rows import Blob
from pgo_collector.model.times import DAY_NANOS
from pgo_collector.store.garbage import delete_live
from pgo_collector.store.locks import Locks
from pgo_collector.store.store import Store

_MEGABYTE = 1 << 20
_log = structlog.get_logger()

Reason = Literal["age", "size"]


class Bounds(NamedTuple):
    """The bounds of profiles: their age in days, and their total size in MiB; inf for no bound."""

    days: float
    megabytes: float


class Expired(NamedTuple):
    """A blob to be deleted, and why."""

    blob: Blob
    reason: Reason


@dataclass(frozen=True, slots=True)
class Retention:
    """The bounds of single profiles, and of combined ones."""

    single: Bounds
    combined: Bounds

    def expired(self, catalog: Catalog, now_nanos: int) -> list[Expired]:
        """Return the blobs to delete, single ones first, the oldest first in each kind."""
        found: list[Expired] = []
        for is_combined, bounds in ((False, self.single), (True, self.combined)):
            before = now_nanos - bounds.days * DAY_NANOS
            blobs = catalog.expired(
                combined=is_combined, before_nanos=before, most_bytes=bounds.megabytes * _MEGABYTE
            )
            found += (Expired(blob, "age" if blob.end_nanos < before else "size") for blob in blobs)
        return found

    async def enforce(self, store: Store, locks: Locks, now_nanos: int) -> None:
        """Delete the expired blobs. Raises OSError, SQLAlchemyError, CatalogBusy or WorkerUnavailable."""
        expired = await asyncio.to_thread(self.expired, store.catalog, now_nanos)
        ordered = sorted(expired, key=lambda each: _owner(each.blob))
        for (service, type_), of_owner in groupby(ordered, key=lambda each: _owner(each.blob)):
            blobs = [each.blob for each in of_owner]
            async with locks.changing(service, type_) as lease:
                await delete_live(store, lease, service, type_, blobs)
            _log.info("deleted by age or size", service=service, type=type_, blobs=len(blobs))


def _owner(blob: Blob) -> tuple[str, str]:
    return blob.name.series.service, blob.name.series.type
