"""Warming: after a start, workers read what is stored, so that no merge has to wait for all of it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import numpy as np
import structlog
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.engine.tasks import read_rows
from pgo_collector.errors import TaskOutOfMemory, WorkerUnavailable
from pgo_collector.merges.inputs import choose_now
from pgo_collector.model.selection import Selection
from pgo_collector.store.store import Store

# Between two of these, requests have their turn.
_BATCH = 64
_log = structlog.get_logger()


class Warming:
    """How far it is: of so many blobs that there were at the start, so many have been read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.read = self.total = 0

    async def run(self) -> None:
        """Reads all, service after service; those last that have the newest profiles."""
        try:
            owners = await asyncio.to_thread(self._store.catalog.live_counts)
            self.total = sum(owners.values())
            for (service, type_), count in owners.items():
                before = self.read
                await self._warm(service, type_)
                self.read = before + count  # what has come or gone since the start plays no part
        except (WorkerUnavailable, TaskOutOfMemory, SQLAlchemyError, OSError) as error:
            _log.warning("not all was read, merges will", reason=str(error))

    async def _warm(self, service: str, type_: str) -> None:
        start = time.perf_counter()
        every = await asyncio.to_thread(choose_now, self._store, Selection(service, type_))
        for begin in range(0, len(every.blobs), _BATCH):
            batch = every.blobs.take(np.arange(begin, min(begin + _BATCH, len(every.blobs))))
            await self._store.workers.run_for(every.owner, read_rows, replace(every, blobs=batch))
            self.read += len(batch)
        ms = round((time.perf_counter() - start) * 1000, 1)
        _log.info("rows are there", service=service, type=type_, blobs=len(every.blobs), ms=ms)
