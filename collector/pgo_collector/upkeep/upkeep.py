"""Upkeep: runs retention and roll-ups at the start, and after each pause, in one collector at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import structlog
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.catalog.database import Owner
from pgo_collector.catalog.ended_sessions import EndedSessions
from pgo_collector.errors import LeaseHeld, Refusal, StorageFails
from pgo_collector.model.times import DAY_NANOS
from pgo_collector.settings import Settings
from pgo_collector.store.binaries import Binaries
from pgo_collector.store.garbage import collect_garbage
from pgo_collector.store.locks import TAKEOVER_SECONDS, Locks
from pgo_collector.store.store import Store
from pgo_collector.traces.spans import span
from pgo_collector.traces.tracing import NO_TRACING, Tracing
from pgo_collector.upkeep.clock import TrustedClock
from pgo_collector.upkeep.retention import Expired, Retention, by_owner, delete_expired
from pgo_collector.upkeep.rollup import crowded_days, roll_up
from pgo_collector.workers.blob_tasks import BlobTasks

# The earliest time that a profile can have, in ns since 1970.
_FIRST_NANOS = -(1 << 63)
_FIX = "correct the clock; or, if it is right, start once with PGOF_RETENTION_SHARE=1"
_log = structlog.get_logger()


class Upkeep:
    """Runs upkeep, with `pause` seconds between two runs.

    `done_at` is when the last run without a failure ended, in seconds since 1970; before the first, it is
    when this object was created.
    """

    def __init__(
        self,
        store: Store,
        tasks: BlobTasks,
        locks: Locks,
        settings: Settings,
        clock: TrustedClock,
        *,
        binaries: Binaries,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._locks = locks
        self._tracing = tracing
        self._retention = Retention.of(settings)
        self._share = settings.retention_share
        self._clock = clock
        self._ended_sessions = EndedSessions(store.catalog)
        self._binaries = binaries
        self._rollup_days = settings.rollup_days
        self._rollup_labels = settings.labels_of_rollups
        self.pause = settings.upkeep_seconds
        self.done_at = time.time()

    async def run(self) -> NoReturn:
        """Run upkeep now and after each pause, until cancelled."""
        while True:
            try:
                await asyncio.to_thread(self._clock.read, self._store.catalog)
                async with self._locks.lease("upkeep", TAKEOVER_SECONDS):
                    with self._tracing.background("upkeep", "upkeep"):
                        refused = await self._run_once(time.time_ns())
                if refused:
                    _log_failed(refused[-1])
                else:
                    self.done_at = time.time()
                    _log.info("upkeep done")
            except LeaseHeld:
                self.done_at = time.time()
                _log.info("upkeep skipped")
            except (Refusal, OSError, SQLAlchemyError) as error:
                _log_failed(str(error))
            await self._tasks.workers.save_rows()
            await asyncio.sleep(self.pause)

    async def _run_once(self, now_nanos: int) -> list[str]:
        """Collect garbage, delete expired profiles, and roll up; return why not, for some service or for all.

        Raises OSError or SQLAlchemyError.
        """
        store, locks = self._store, self._locks
        refused: list[str] = []
        with span("upkeep", "garbage"):
            for owner in await asyncio.to_thread(store.catalog.retired_owners):
                with _going_on(owner, refused):
                    await self._collect_garbage(*owner)
        with span("upkeep", "retention"):
            expired, too_many = await asyncio.to_thread(self._expired, now_nanos)
            for owner, blobs in sorted(by_owner(expired).items()):
                with _going_on(owner, refused):
                    await delete_expired(store, self._tasks, locks, owner, blobs)
            if too_many:
                return [*refused, f"retention refused to delete {too_many}"]
            await self._binaries.delete_old(now_nanos)
            await self._trust(now_nanos)
        before, labels = now_nanos - self._rollup_days * DAY_NANOS, self._rollup_labels
        if before >= _FIRST_NANOS:
            with span("upkeep", "roll-up"):
                crowded = await asyncio.to_thread(crowded_days, store, int(before), labels)
                for owner, groups in crowded.items():
                    with _going_on(owner, refused):
                        await roll_up(store, self._tasks, locks, owner, groups=groups, kept_labels=labels)
        return refused

    def _expired(self, now_nanos: int) -> tuple[list[Expired], str]:
        """Return the blobs to delete, and what is too much to be deleted by a clock that has moved."""
        catalog, retention = self._store.catalog, self._retention
        expired = retention.expired(catalog, now_nanos)
        if not (days := self._clock.days_ahead(now_nanos)):
            return expired, ""
        too_many = retention.too_many(catalog, expired, self._share) or self._binaries.too_many(
            now_nanos, self._share
        )
        if too_many:
            _log.error("retention refused", days_ahead=round(days, 1), too_many=too_many, fix=_FIX)
            expired = retention.of_size.expired(catalog, now_nanos)
        return expired, too_many

    async def _trust(self, now_nanos: int) -> None:
        """Note that the clock is right, unless it may have moved, and forget sessions that are over by it."""
        clock, store = self._clock, self._store
        if clock.is_trusted(now_nanos):
            await store.write(self._ended_sessions.drop_older, now_nanos)
        elif self._share < 1 and not await asyncio.to_thread(clock.is_confirmed, store.catalog, now_nanos):
            return
        await clock.trust(store, now_nanos)

    async def _collect_garbage(self, service: str, type_: str) -> None:
        """Delete the retired blobs that couldn't be deleted at once."""
        async with self._locks.changing(service, type_) as lease:
            await collect_garbage(self._store, self._tasks, lease, service, type_)


def _log_failed(reason: str) -> None:
    _log.error("upkeep failed", reason=reason)


@contextmanager
def _going_on(owner: Owner, refused: list[str]) -> Iterator[None]:
    """Add what the block is refused to a list, so that other services don't wait for this one."""
    try:
        yield
    except StorageFails:
        raise
    except Refusal as error:
        service, type_ = owner
        _log.error("service upkeep failed", service=service, type=type_, reason=str(error))
        refused.append(str(error))
