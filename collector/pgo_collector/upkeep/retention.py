"""Retention: delete profiles by age and by total size, with separate bounds for single and combined ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal, NamedTuple, Self

import structlog

from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.database import Owner
from pgo_collector.catalog.rows import Blob
from pgo_collector.model.times import DAY_NANOS
from pgo_collector.settings import Settings
from pgo_collector.store.garbage import delete_live
from pgo_collector.store.locks import Locks
from pgo_collector.store.store import Store
from pgo_collector.workers.blob_tasks import BlobTasks

_MEGABYTE = 1 << 20
_log = structlog.get_logger()

Reason = Literal["age", "size"]


class RetentionBounds(NamedTuple):
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

    single: RetentionBounds
    combined: RetentionBounds

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the retention that the settings ask for."""
        return cls(
            RetentionBounds(settings.keep_days, settings.keep_megabytes),
            RetentionBounds(settings.keep_combined_days, settings.keep_combined_megabytes),
        )

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

    @property
    def of_size(self) -> Self:
        """The same bounds of size, and none of age."""
        return replace(self, single=self.single._replace(days=inf), combined=self.combined._replace(days=inf))

    def too_many(self, catalog: Catalog, expired: Sequence[Expired], share: float) -> str:
        """Return how many blobs are too old, in words, if that is more than a share of all of their kind.

        Otherwise the text is empty.
        """
        old = Counter(each.blob.inputs_size > 0 for each in expired if each.reason == "age")
        for is_combined, kind in ((False, "single"), (True, "combined")):
            live = catalog.live_count(combined=is_combined) if old[is_combined] else 0
            if old[is_combined] > share * live:
                return f"{old[is_combined]} of {live} {kind} profiles"
        return ""


def by_owner(expired: Sequence[Expired]) -> dict[Owner, list[Blob]]:
    """Return blobs to delete, by their service and type."""
    found: dict[Owner, list[Blob]] = {}
    for each in expired:
        service, type_, *_ = each.blob.name.series
        found.setdefault((service, type_), []).append(each.blob)
    return found


async def delete_expired(
    store: Store, tasks: BlobTasks, locks: Locks, owner: Owner, blobs: Sequence[Blob]
) -> None:
    """Delete blobs of a service and type.

    Raises OSError, SQLAlchemyError, CatalogBusy or WorkerUnavailable.
    """
    service, type_ = owner
    async with locks.changing(service, type_) as lease:
        await delete_live(store, tasks, lease, owner, blobs)
    _log.info("profiles expired", service=service, type=type_, blobs=len(blobs))
