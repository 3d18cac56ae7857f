"""Upkeep: runs retention and roll-ups at the start, and after each pause, in one collector at a time."""

from __future__ import annotations

import asyncio
import time
from typing import NoReturn

import structlog
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.errors import LeaseHeld, Refusal
from pgo_collector.model.times import DAY_NANOS
from pgo_collector.settings import Settings
from pgo_collector.store.binaries import Binaries
from pgo_collector.store.garbage import collect_garbage
from pgo_collector.store.locks import TAKEOVER_SECONDS, Locks
from pgo_collector.store.store import Store
from pgo_collector.traces.spans import span
from pgo_collector.traces.tracing import NO_TRACING, Tracing
from pgo_collector.upkeep.retention import Bounds, Retention
from pgo_collector.upkeep.rollup import roll_up

# The earliest time that a profile can have, in ns since 1970.
_FIRST_NANOS = -(1 << 63)
_log = structlog.get_logger()


def retention_of(settings: Settings) -> Retention:
    """Return the retention that the settings ask for."""
    return Retention(
        Bounds(settings.keep_days, settings.keep_megabytes),
        Bounds(settings.keep_combined_days, settings.keep_combined_megabytes),
    )


class Upkeep:
    """Runs upkeep, with `pause` seconds between two runs.

    `done_at` is when the last run without a failure ended, in seconds since 1970; before the first, it is
    when this object was created.
    """

    def __init__(self, store: Store, locks: Locks, settings: Settings, tracing: Tracing = NO_TRACING) -> None:
        self._store = store
        self._locks = locks
        self._tracing = tracing
        self._retention = retention_of(settings)
        self._binaries = Binaries(store, settings)
        self._rollup_days = settings.rollup_days
        self._rollup_labels = settings.labels_of_rollups
        self.pause = settings.upkeep_seconds
        self.done_at = time.time()

    async def run(self) -> NoReturn:
        """Run upkeep now and after each pause, until cancelled."""
        while True:
            try:
                async with self._locks.lease("upkeep", TAKEOVER_SECONDS):
                    with self._tracing.background("upkeep", "upkeep"):
                        await self._run_once(time.time_ns())
                self.done_at = time.time()
                _log.info("upkeep done")
            except LeaseHeld:
                self.done_at = time.time()
                _log.info("upkeep is another collector's now")
            except (Refusal, OSError, SQLAlchemyError) as error:
                _log.error("upkeep failed, tried again later", reason=str(error))
            await self._save_rows()
            await asyncio.sleep(self.pause)

    async def _save_rows(self) -> None:
        """Have the workers save the rows that they have read."""
        try:
            await self._store.workers.save_rows()
        except (Refusal, OSError) as error:
            _log.error("rows are not saved, tried again later", reason=str(error))

    async def _run_once(self, now_nanos: int) -> None:
        """Delete expired profiles, roll up, and collect garbage.

        Raises Refusal, OSError or SQLAlchemyError.
        """
        with span("upkeep", "retention"):
            await self._retention.enforce(self._store, self._locks, now_nanos)
            await self._binaries.delete_old(now_nanos)
        before = now_nanos - self._rollup_days * DAY_NANOS
        if before >= _FIRST_NANOS:
            with span("upkeep", "roll-up"):
                await roll_up(self._store, self._locks, int(before), self._rollup_labels)
        with span("upkeep", "garbage"):
            await self._collect_garbage()

    async def _collect_garbage(self) -> None:
        """Delete the retired blobs that couldn't be deleted at once."""
        for service, type_ in await asyncio.to_thread(self._store.catalog.retired_owners):
            async with self._locks.changing(service, type_) as lease:
                await collect_garbage(self._store, lease, service, type_)
