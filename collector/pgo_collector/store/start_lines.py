"""Adding to the tables of start lines: one for each build of a service.

See `engine.start_lines` for what is in them, and who gets it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from pprof_merge import Limits

from pgo_collector.blobs.copies import Copies
from pgo_collector.blobs.files import log_not_deleted
from pgo_collector.blobs.storage import START_LINES
from pgo_collector.engine.start_lines import (
    DELAY_NANOS,
    AddedSymbols,
    Additions,
    Tables,
    add_symbols,
    learn_start_lines,
)
from pgo_collector.model.series import BlobName
from pgo_collector.settings import Settings
from pgo_collector.store.store import Store
from pgo_collector.workers.pool import Workers

# How many builds of a service keep start lines; the least recently updated go first.
_MOST_BUILDS = 100


class StartLineTables:
    """Adds to the tables: what Go profiles say, and uploaded symbols. One thing after another."""

    def __init__(self, store: Store, workers: Workers, settings: Settings) -> None:
        self.store = store
        self.workers = workers
        self._storage = store.blobs.storage.area(START_LINES)
        self.tables = Tables(self._storage, Copies(store.folder.copies, settings.copies_bytes))
        self._delay_nanos = DELAY_NANOS + int(self._storage.longest_wait * 10**9)
        self._most_functions = settings.symbols_functions
        self._limits: Limits = settings.limits._replace(
            compressed_bytes=settings.symbols_bytes, inflated_bytes=settings.symbols_bytes
        )
        self._lock = asyncio.Lock()

    async def services(self) -> list[str]:
        """Return the services that have tables. Raises OSError."""
        listed = await asyncio.to_thread(self._storage.lister(), "")
        return [] if listed is None else listed.folders

    async def learn(self, service: str, blobs: Sequence[BlobName]) -> list[str]:
        """Add what stored Go profiles of a service say; return the names of the tables that have grown.

        Raises OSError, and what `Workers.run` raises.
        """
        async with self._lock:
            grown = await self.workers.run(
                learn_start_lines, self.store.blobs.storage, [*map(str, blobs)], self._additions(service)
            )
            await self.store.write_area(self._prune, service)
            return grown

    async def add(self, service: str, body: Path) -> tuple[AddedSymbols, int]:
        """Add the symbols in a file durably; return what they were, and from when on profiles get them.

        The time is in ns since 1970. Raises SymbolsUnreadable, BodyTooLarge, OSError, and what `Workers.run`
        raises.
        """
        async with self._lock:
            additions = self._additions(service)
            added = await self.workers.run(add_symbols, body, additions, self._limits)
            await self.store.write_area(self._prune, service)
            return added, additions.since

    def _additions(self, service: str) -> Additions:
        since = time.time_ns() + self._delay_nanos
        return Additions(self._storage, service, self._most_functions, since)

    def _prune(self, service: str) -> None:
        """Delete the oldest tables of a service that are too many."""
        tables = sorted(self._storage.objects(service), key=lambda of: of.written_nanos, reverse=True)
        surplus = [of.name for of in tables[_MOST_BUILDS:]]
        for name, error in self._storage.delete(surplus).items():  # the next addition tries again
            log_not_deleted(self._storage.where(name), error)
