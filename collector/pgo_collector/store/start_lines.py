"""Tables of start lines in the data folder: one for each build of a service, which one writer adds to.

See `engine.start_lines` for what is in them, and who gets it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from pprof_merge import Limits

from pgo_collector.engine.start_lines import (
    MOST_BUILD_IDS,
    AddedSymbols,
    TableFolder,
    add_symbols,
    learn_start_lines,
)
from pgo_collector.model.blob_names import BlobName
from pgo_collector.settings import Settings
from pgo_collector.storage.files import make_folder, sync_file, sync_folder
from pgo_collector.store.store import Store

# What is added counts for profiles that are taken so much later, when it is surely written.
_DELAY_NANOS = 10 * 10**9


class StartLineTables:
    """Adds to the tables: what Go profiles say, and uploaded symbols. One thing after another."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self._most_builds = settings.symbols_builds
        self._most_functions = settings.symbols_functions
        self._limits: Limits = settings.limits._replace(
            compressed_bytes=settings.symbols_bytes, inflated_bytes=settings.symbols_bytes
        )
        self._lock = asyncio.Lock()

    async def learn(self, service: str, blobs: Sequence[BlobName]) -> list[str]:
        """Add what stored Go profiles of a service say; return the names of the tables that have grown.

        Raises OSError, and what `Workers.run` raises.
        """
        async with self._lock, AsyncExitStack() as stack:
            parts = [await stack.enter_async_context(self.store.part()) for _ in blobs]
            written = await self.store.workers.run(
                learn_start_lines,
                self.store.blobs.storage,
                [*map(str, blobs)],
                self._tables(service, time.time_ns() + _DELAY_NANOS),
                parts,
            )
            return await self._place(written)

    async def add(self, service: str, body: Path) -> tuple[AddedSymbols, int]:
        """Add the symbols in a file durably; return what they were, and from when on profiles get them.

        The time is in ns since 1970. Raises SymbolsUnreadable, BodyTooLarge, OSError, and what `Workers.run`
        raises.
        """
        async with self._lock, AsyncExitStack() as stack:
            parts = [await stack.enter_async_context(self.store.part()) for _ in range(MOST_BUILD_IDS)]
            since = time.time_ns() + _DELAY_NANOS
            added = await self.store.workers.run(
                add_symbols, body, self._tables(service, since), self._limits, parts
            )
            await self._place(added.written)
            return added, since

    def _tables(self, service: str, since: int) -> TableFolder:
        return TableFolder(self.store.folder.start_lines, service, self._most_functions, since)

    async def _place(self, written: Sequence[tuple[Path, Path]]) -> list[str]:
        for part, table in written:
            await self.store.write(_place, part, table, self._most_builds)
        return [table.stem for _, table in written]


def _place(part: Path, table: Path, most: int) -> None:
    """Put a table in its place, durably, and delete the oldest of the service's that are too many."""
    make_folder(table.parent)
    sync_file(part)
    part.replace(table)
    sync_folder(table.parent)
    tables = sorted(table.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in tables[most:]:
        path.unlink()
