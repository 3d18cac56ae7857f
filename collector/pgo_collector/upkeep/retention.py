"""Retention: profiles are deleted by age and by total size; single ones and combined ones apart."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

import structlog

from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.rows import Blob
from pgo_collector.merges.making import Locks
from pgo_collector.model.times import DAY_NANOS
from pgo_collector.store.garbage import collect_garbage
from pgo_collector.store.store import Store

_MEGABYTE = 1 << 20
# So many are deleted at a time, and then submits have their turn.
_BATCH = 128
_log = structlog.get_logger()

Reason = Literal["age", "size"]


class Bounds(NamedTuple):
    """How old profiles get, and how large all of them together; inf for no bound."""

    days: float
    megabytes: float


class Expired(NamedTuple):
    """A blob to be deleted, and why."""

    blob: Blob
    reason: Reason


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept of single profiles, and of combined ones."""

    single: Bounds
    combined: Bounds

    def expired(self, catalog: Catalog, now_nanos: int) -> list[Expired]:
        """What is to be deleted, the oldest first."""
        found: list[Expired] = []
        for is_combined, bounds in ((False, self.single), (True, self.combined)):
            before = now_nanos - bounds.days * DAY_NANOS
            blobs = catalog.expired(
                combined=is_combined, before_nanos=before, most_bytes=bounds.megabytes * _MEGABYTE
            )
            found += (Expired(blob, "age" if blob.end_nanos < before else "size") for blob in blobs)
        return found

    async def enforce(self, store: Store, locks: Locks, now_nanos: int) -> None:
        """Deletes it. Raises OSError, SQLAlchemyError or WorkerUnavailable."""
        expired = await asyncio.to_thread(self.expired, store.catalog, now_nanos)
        ordered = sorted(expired, key=lambda each: _owner(each.blob))
        for (service, type_), of_owner in groupby(ordered, key=lambda each: _owner(each.blob)):
            gone = [*of_owner]
            async with locks.of(service, type_):
                for start in range(0, len(gone), _BATCH):
                    some = [each.blob for each in gone[start : start + _BATCH]]
                    await store.write(_delete, store, some)
                await collect_garbage(store, service, type_)
            _log.info("deleted by age or size", service=service, type=type_, blobs=len(gone))


def _delete(store: Store, blobs: Sequence[Blob]) -> None:
    """Row before file: killed in between, the next start counts the profile again, and it expires again.

    The other way round a row would be left without its profile.
    """
    store.catalog.drop(blobs)
    for blob in blobs:
        try:
            store.blobs.discard(blob.name)
        except OSError as error:
            _log.warning("not deleted, left for the next start", blob=str(blob.name), reason=error.strerror)
    store.blobs.remove_folders(blob.name for blob in blobs)


def _owner(blob: Blob) -> tuple[str, str]:
    return blob.name.series.service, blob.name.series.type
