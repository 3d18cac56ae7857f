"""Readiness, for /readyz: whether everything that requests need works, tried at most once a second."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import time
from collections.abc import Awaitable, Callable

import structlog
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.background import BackgroundTasks
from pgo_collector.blobs.files import delete_part
from pgo_collector.catalog.stored_rows import made_nanos
from pgo_collector.errors import CatalogFails, TaskOutOfMemory, WorkerUnavailable
from pgo_collector.store.store import Store, catalog_fails, reason_of
from pgo_collector.workers.pool import Workers

_FRESH_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0
# Larger than what a file system stores inside an inode, so that it has to allocate a block.
_TRIED_BYTES = 8192
_MEBIBYTE = 1 << 20
_log = structlog.get_logger()


class Readiness:
    """Tries whether the folder can be written, its disk has room, the storage of blobs can be reached, the
    catalog can be read, and all worker processes and background tasks run.
    """

    def __init__(
        self, store: Store, workers: Workers, background: BackgroundTasks, min_free_megabytes: float
    ) -> None:
        self._store = store
        self._background = background
        self._min_free_megabytes = min_free_megabytes
        self._parts = {
            "store": _Part(self._write, "the disk is slow"),
            "storage": _Part(self._reach, "the object store is slow"),
            "disk": _Part(self._measure, "the disk is slow"),
            "catalog": _Part(self._read, "the catalog is slow"),
            "workers": _Part(workers.ping, "the workers are slow"),
        }
        self._known: dict[str, str] = {}

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts that are tried."""
        return tuple(self._parts)

    async def faults(self) -> dict[str, str]:
        """Return the parts that fail, and why; an empty dict if the server is ready."""
        reasons = await asyncio.gather(*(part.fault() for part in self._parts.values()))
        faults = {name: reason for name, reason in zip(self._parts, reasons, strict=True) if reason}
        faults |= self._background.failing
        if faults and faults != self._known:
            _log.error("not ready", fails=faults)
        elif self._known and not faults:
            _log.info("ready again")
        self._known = faults
        return faults

    async def _write(self) -> None:
        await asyncio.to_thread(self._write_part)

    def _write_part(self) -> None:
        """Write a durable file, as a submit does, and delete it."""
        self._store.folder.check_same_folder()
        part = self._store.folder.new_part()
        try:
            with part.open("wb") as file:
                file.write(bytes(_TRIED_BYTES))
                file.flush()
                os.fsync(file.fileno())
        finally:
            failure = delete_part(part)
        if failure is not None:
            raise failure

    async def _reach(self) -> None:
        await asyncio.to_thread(self._store.blobs.storage.ping)
        await asyncio.to_thread(self._store.claim.check)

    async def _measure(self) -> None:
        usage = await asyncio.to_thread(shutil.disk_usage, self._store.folder.path)
        free = usage.free / _MEBIBYTE
        if free < self._min_free_megabytes:
            raise OSError(
                errno.ENOSPC,
                f"{free:,.1f} MiB are free, less than {self._min_free_megabytes:g} (PGOF_MIN_FREE_MEGABYTES)",
            )

    async def _read(self) -> None:
        await asyncio.to_thread(self._read_catalog)

    def _read_catalog(self) -> None:
        """Read the catalog as a server that starts now would: an open file may have been deleted."""
        database = self._store.catalog.database
        try:
            if (damage := database.damage()) is not None:
                raise CatalogFails(damage)
            with database.looking() as connection:
                made_nanos(connection)
        except SQLAlchemyError as error:
            raise catalog_fails(error) from error


class _Part:
    """One part and its last try, which all callers share while it runs or is fresh."""

    def __init__(self, attempt: Callable[[], Awaitable[None]], slow: str) -> None:
        """Take the attempt, and the words for one that takes too long."""
        self._attempt = attempt
        self._slow = slow
        self._task: asyncio.Task[str | None] | None = None
        self._begun = self._ended = 0.0

    async def fault(self) -> str | None:
        """Return why the part fails; None if it works."""
        now = time.monotonic()
        if self._task is None or (self._task.done() and now - self._ended > _FRESH_SECONDS):
            self._begun, self._task = now, asyncio.create_task(self._try())
        left = max(self._begun + _PATIENCE_SECONDS - now, 0)
        await asyncio.wait([self._task], timeout=left)
        if not self._task.done():
            return f"{self._slow}: no answer within {_PATIENCE_SECONDS:g} seconds"
        return self._task.result()

    async def _try(self) -> str | None:
        try:
            await self._attempt()
        except (WorkerUnavailable, TaskOutOfMemory, CatalogFails, OSError) as error:
            return reason_of(error)
        finally:
            self._ended = time.monotonic()
        return None
