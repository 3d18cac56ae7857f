"""Warming: workers read stored profiles ahead of the merges that need them, so that no merge has to wait for
them: after a start all that are stored, and later each one soon after it came, when the workers are idle.

    a blob becomes live → Catalog.changed → Warming, once the workers are idle → `read_rows` in the worker
    that keeps the rows of its service and type, where they are also added up

A profile that wasn't read ahead is read by the first merge that needs it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np
import structlog
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.catalog.database import Owner
from pgo_collector.catalog.rows import Blob
from pgo_collector.engine.merge_inputs import ChosenBlobs
from pgo_collector.engine.row_cache import SEGMENT_PROFILES
from pgo_collector.engine.tasks import missing_rows, read_rows, sum_rows
from pgo_collector.errors import TaskOutOfMemory, WorkerUnavailable
from pgo_collector.merges.inputs import choose_live, chosen_of
from pgo_collector.model.profile_types import CPU
from pgo_collector.model.selection import Selection
from pgo_collector.store.store import Store
from pgo_collector.workers.blob_tasks import BlobTasks

# Blobs in one task; between two tasks, requests have their turn.
_BATCH = 32
# Blobs whose rows are added up in one task, some 50 ms.
_SUMMED = 4096
# The pause after which new blobs are read, if the workers are idle: none of them has a task, and the tasks of
# the pause took less than this part of all workers' time. Workers keep decoded what comes in the meantime.
_PAUSE_SECONDS = 0.25
# With 1/8, 1/4 and 1/2 a submit of 16 clients on 2 cores took 1.80, 1.94 and 2.05 ms of CPU, and the merge of
# the 1,800 profiles 0.5, 0.2 and 0.1 s.
_IDLE = 0.125
# Blobs read after which freed memory is given back to the kernel, once nothing has come for so long. With
# thousands of services in memory that takes tens of milliseconds.
_WORTH_TRIMMING = 32
_REST_SECONDS = 2.0
# The earliest time that a profile can have, in ns since 1970.
_FIRST_NANOS = -(1 << 63)
_FAILURES = (WorkerUnavailable, TaskOutOfMemory, SQLAlchemyError, OSError)
_log = structlog.get_logger()


class Warming:
    """Reads blobs ahead. At a start, `total` blobs were live, and `read` of these have been read so far."""

    def __init__(self, store: Store, tasks: BlobTasks) -> None:
        self._store = store
        self._tasks = tasks
        self._workers = tasks.workers
        self.read = self.total = 0
        # The services and types of which blobs have come or gone since they were read ahead.
        self._waiting: dict[Owner, None] = {}
        # The largest id of the blobs that were read ahead, by service and type, and that of all at the start.
        self._read_to: dict[Owner, int] = {}
        self._first = 0
        # How many blobs were read since the workers last gave freed memory back.
        self._untrimmed = 0

    @property
    def behind(self) -> int:
        """Return how many services and types may have new blobs that weren't read ahead yet."""
        return len(self._waiting.keys() | {*self._store.catalog.changed})

    async def run(self) -> NoReturn:
        """Read the stored blobs ahead, and from then on new ones, until cancelled."""
        try:
            await self._read_stored()
            await asyncio.to_thread(self._compile_statements)
        except _FAILURES as error:
            _log_failed(error)
        while True:
            await self._changed()
            await self._idle()
            self._waiting = dict.fromkeys(self._store.catalog.changed.take())
            for owner in [*self._waiting]:
                try:
                    await self._read_new(owner)
                except _FAILURES as error:
                    _log_failed(error)
                del self._waiting[owner]

    def _compile_statements(self) -> None:
        """Select nothing, as most merges select something: everything, the last days, between two times.

        SQLAlchemy compiles a statement at its first use, which would take the first merge 8 ms.
        """
        for begin, end in ((None, None), (0, time.time_ns()), (0, 1)):
            self._store.catalog.resolve(Selection("", CPU, begin=begin, end=end))

    async def _changed(self) -> None:
        """Wait until there may be new blobs. When none come, have the workers give freed memory back."""
        changed = self._store.catalog.changed
        try:
            async with asyncio.timeout(_REST_SECONDS if self._untrimmed >= _WORTH_TRIMMING else None):
                await changed.wait()
        except TimeoutError:
            self._untrimmed = 0
            try:
                await self._workers.trim_heaps()
            except _FAILURES as error:
                _log_failed(error)
            await changed.wait()

    async def _read_stored(self) -> None:
        """Read all live blobs, service after service; the services with the newest profiles come last."""
        catalog = self._store.catalog
        self._read_to = await asyncio.to_thread(catalog.newest_ids, _FIRST_NANOS)
        self._first = max(self._read_to.values(), default=0)
        owners = await asyncio.to_thread(catalog.live_counts)
        self.read, self.total = 0, sum(owners.values())
        for (service, type_), count in owners.items():
            before = self.read
            await self._warm(service, type_)
            self.read = before + count  # blobs that have come or gone since the start don't count

    async def _warm(self, service: str, type_: str) -> None:
        start = time.perf_counter()
        chosen = await asyncio.to_thread(choose_live, self._store, Selection(service, type_))
        missing = await self._tasks.read(missing_rows, chosen)
        self.read += len(chosen.blobs) - len(missing)
        for begin in range(0, len(missing), _BATCH):
            batch = chosen.blobs.take(missing[begin : begin + _BATCH])
            await self._workers.run_for(chosen.owner, read_rows, replace(chosen, blobs=batch))
            self.read += len(batch)
            self._untrimmed += len(batch)
        await self._sum(chosen)
        ms = round((time.perf_counter() - start) * 1000, 1)
        _log.info("rows loaded", service=service, type=type_, blobs=len(chosen.blobs), ms=ms)

    async def _sum(self, chosen: ChosenBlobs) -> None:
        """Add up rows that were read, unless there are few, or there is no memory for sums."""
        every = np.arange(len(chosen.blobs))
        if len(every) < SEGMENT_PROFILES or not self._workers.has_room_for_rows(chosen.owner):
            return
        for begin in range(0, len(every), _SUMMED):
            batch = chosen.blobs.take(every[begin : begin + _SUMMED])
            await self._workers.run_for(chosen.owner, sum_rows, replace(chosen, blobs=batch))

    async def _read_new(self, owner: Owner) -> None:
        """Read the blobs of a service and type that are newer than what was read ahead before.

        Where rows fill the memory, some have to leave it for others to be read: then it waits until there are
        enough new profiles for a segment.
        """
        while blobs := await self._newer(owner):
            for begin in range(0, len(blobs), _BATCH):
                batch = blobs[begin : begin + _BATCH]
                self._read_to[owner] = batch[-1].id  # first: a blob that ends its worker isn't tried again
                if await self._read(owner, batch):
                    await self._idle()

    async def _newer(self, owner: Owner) -> Sequence[Blob]:
        known = self._read_to.get(owner, self._first)
        blobs = await asyncio.to_thread(self._store.catalog.live_after, owner, known, SEGMENT_PROFILES)
        is_worth_it = len(blobs) == SEGMENT_PROFILES or self._workers.has_room_for_rows("/".join(owner))
        return blobs if is_worth_it else ()

    async def _read(self, owner: Owner, blobs: Sequence[Blob]) -> bool:
        """Read blobs; return whether the workers had other tasks meanwhile."""
        chosen = chosen_of(self._store.blobs.storage, Selection(*owner), blobs)
        before, began = self._workers.task_seconds, time.monotonic()
        await self._workers.run_for(chosen.owner, read_rows, chosen)
        self._untrimmed += len(blobs)
        elapsed = time.monotonic() - began
        return not self._are_idle(self._workers.task_seconds - before - elapsed, elapsed)

    async def _idle(self) -> None:
        """Wait for a pause in which the workers have little to do."""
        while True:
            before, began = self._workers.task_seconds, time.monotonic()
            await asyncio.sleep(_PAUSE_SECONDS)
            if self._are_idle(self._workers.task_seconds - before, time.monotonic() - began):
                return

    def _are_idle(self, used: float, elapsed: float) -> bool:
        """Return whether the workers have no task now, and tasks used few of the elapsed seconds."""
        return self._workers.busy == 0 and used < _IDLE * self._workers.count * elapsed


def _log_failed(error: Exception) -> None:
    _log.warning("warming failed", reason=str(error))
