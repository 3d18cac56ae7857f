"""Joining: learns where Go functions begin, so that eBPF profiles of the same build can be used by builds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NoReturn

import structlog
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.errors import LeaseHeld, Refusal
from pgo_collector.model.profile_types import BY_PROFILES, BY_SYMBOLS, CPU, PROCESS_CPU, START_LINES
from pgo_collector.model.selection import Matcher, Selection
from pgo_collector.store.locks import TAKEOVER_SECONDS, Locks
from pgo_collector.store.start_lines import StartLineTables
from pgo_collector.traces.tracing import NO_TRACING, Tracing

# Profiles of a service that are read in one run, the newest.
_MOST_PROFILES = 8
_NOT_JOINED = Matcher(START_LINES, frozenset([BY_PROFILES, BY_SYMBOLS]), is_negated=True)
_log = structlog.get_logger()


class NoJoining:
    """The null object of a server that learns nothing."""

    async def run(self) -> None:
        """Do nothing."""


class Joining:
    """Reads new Go profiles of the services that eBPF profiles come from, with `pause` seconds between."""

    def __init__(
        self, tables: StartLineTables, locks: Locks, pause: float, tracing: Tracing = NO_TRACING
    ) -> None:
        self._store = tables.store
        self._tables = tables
        self._locks = locks
        self._pause = pause
        self._tracing = tracing
        # The largest id of a blob that was read, by service.
        self._read: dict[str, int] = {}

    async def run(self) -> NoReturn:
        """Learn now and after each pause, until cancelled."""
        while True:
            try:
                async with self._locks.lease("joining", TAKEOVER_SECONDS):
                    with self._tracing.background("upkeep", "start lines"):
                        await self._run_once()
            except LeaseHeld:
                pass  # another collector learns them
            except (Refusal, OSError, SQLAlchemyError) as error:
                _log.error("start lines not learned", reason=str(error))
            await asyncio.sleep(self._pause)

    async def _run_once(self) -> None:
        for service in await asyncio.to_thread(self._services, await self._tables.services()):
            await self._learn(service)

    def _services(self, with_tables: Sequence[str]) -> list[str]:
        """Return the services with Go profiles, from which eBPF profiles came, too."""
        of_ebpf = {*with_tables, *self._store.catalog.services(PROCESS_CPU)}
        return [service for service in self._store.catalog.services(CPU) if service in of_ebpf]

    async def _learn(self, service: str) -> None:
        """Read the newest Go profiles of a service that weren't read yet."""
        own = Selection(service, CPU, (_NOT_JOINED,))
        live = await asyncio.to_thread(self._store.catalog.live, own, _MOST_PROFILES)
        last = self._read.get(service, 0)
        blobs = [blob for blob in live if blob.id > last]
        if not blobs:
            return
        for build in await self._tables.learn(service, [blob.name for blob in blobs]):
            _log.info("start lines learned", service=service, build=build)
        self._read[service] = max(blob.id for blob in blobs)
