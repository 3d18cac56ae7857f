"""Joining: learns where Go functions begin, so that eBPF profiles of the same build can be used by builds."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NoReturn

import structlog
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.engine.start_lines import MOST_BUILDS, learn_start_lines
from pgo_collector.errors import Refusal
from pgo_collector.model.profile_types import CPU, JOINED, PROCESS_CPU
from pgo_collector.model.selection import Matcher, Selection
from pgo_collector.store.folder import make_folder, sync_file, sync_folder
from pgo_collector.store.store import Store
from pgo_collector.traces.tracing import NO_TRACING, Tracing

# Profiles of a service that are read in one run, the newest.
_MOST_PROFILES = 8
# What is learned counts for profiles that are taken so much later, when it is surely written.
_DELAY_NANOS = 10 * 10**9
_KEY, _VALUE = JOINED
_log = structlog.get_logger()


class NoJoining:
    """The null object of a server that learns nothing."""

    async def run(self) -> None:
        """Do nothing."""


class Joining:
    """Reads new Go profiles of the services that eBPF profiles come from, with `pause` seconds between."""

    def __init__(self, store: Store, pause: float, tracing: Tracing = NO_TRACING) -> None:
        self._store = store
        self._pause = pause
        self._tracing = tracing
        # The largest id of a blob that was read, by service.
        self._read: dict[str, int] = {}

    async def run(self) -> NoReturn:
        """Learn now and after each pause, until cancelled."""
        while True:
            try:
                with self._tracing.background("upkeep", "start lines"):
                    await self._run_once()
            except (Refusal, OSError, SQLAlchemyError) as error:
                _log.error("start lines not learned, tried again later", reason=str(error))
            await asyncio.sleep(self._pause)

    async def _run_once(self) -> None:
        for service in await asyncio.to_thread(self._services):
            await self._learn(service)

    def _services(self) -> list[str]:
        """Return the services with Go profiles, from which eBPF profiles came, too."""
        of_ebpf = {folder.name for folder in self._store.folder.start_lines.iterdir()}
        of_ebpf.update(self._store.catalog.services(PROCESS_CPU))
        return [service for service in self._store.catalog.services(CPU) if service in of_ebpf]

    async def _learn(self, service: str) -> None:
        """Read the newest Go profiles of a service that weren't read yet."""
        own = Selection(service, CPU, (Matcher(_KEY, frozenset([_VALUE]), is_negated=True),))
        live = await asyncio.to_thread(self._store.catalog.live, own, _MOST_PROFILES)
        last = self._read.get(service, 0)
        blobs = [blob for blob in live if blob.id > last]
        if not blobs:
            return
        folder = self._store.folder.start_lines
        async with AsyncExitStack() as stack:
            parts = [await stack.enter_async_context(self._store.part()) for _ in blobs]
            since = time.time_ns() + _DELAY_NANOS
            paths = [self._store.blobs.path(blob.name) for blob in blobs]
            written = await self._store.workers.run(learn_start_lines, paths, folder, service, since, parts)
            for part, table in written:
                await self._store.write(_place, part, table)
                _log.info("start lines learned", service=service, build=table.stem)
        self._read[service] = max(blob.id for blob in blobs)


def _place(part: Path, table: Path) -> None:
    """Put a table in its place, durably, and delete the oldest of the service's that are too many."""
    make_folder(table.parent)
    sync_file(part)
    part.replace(table)
    sync_folder(table.parent)
    tables = sorted(table.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in tables[MOST_BUILDS:]:
        path.unlink()
