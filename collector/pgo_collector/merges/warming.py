"""Warming: after a start, workers read the stored profiles, so that no merge has to wait for all of them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import structlog
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.engine.tasks import missing_rows, read_rows
from pgo_collector.errors import TaskOutOfMemory, WorkerUnavailable
from pgo_collector.merges.inputs import choose_live
from pgo_collector.model.selection import Selection
from pgo_collector.store.store import Store
from pgo_collector.workers.blob_tasks import BlobTasks

# Blobs in one task; between two tasks, requests have their turn.
_BATCH = 64
_log = structlog.get_logger()


class Warming:
    """Reads the blobs that were live at the start; `read` of a `total` have been read so far."""

    def __init__(self, store: Store, tasks: BlobTasks) -> None:
        self._store = store
        self._tasks = tasks
        self.read = self.total = 0

    async def run(self) -> None:
        """Read all blobs, service after service; the services with the newest profiles come last."""
        try:
            owners = await asyncio.to_thread(self._store.catalog.live_counts)
            self.total = sum(owners.values())
            for (service, type_), count in owners.items():
                before = self.read
                await self._warm(service, type_)
                self.read = before + count  # blobs that have come or gone since the start don't count
        except (WorkerUnavailable, TaskOutOfMemory, SQLAlchemyError, OSError) as error:
            _log.warning("warming failed", reason=str(error))

    async def _warm(self, service: str, type_: str) -> None:
        start = time.perf_counter()
        chosen = await asyncio.to_thread(choose_live, self._store, Selection(service, type_))
        missing = await self._tasks.read(missing_rows, chosen)
        self.read += len(chosen.blobs) - len(missing)
        for begin in range(0, len(missing), _BATCH):
            batch = chosen.blobs.take(missing[begin : begin + _BATCH])
            await self._tasks.workers.run_for(chosen.owner, read_rows, replace(chosen, blobs=batch))
            self.read += len(batch)
        ms = round((time.perf_counter() - start) * 1000, 1)
        _log.info("rows loaded", service=service, type=type_, blobs=len(chosen.blobs), ms=ms)
