"""The report on a series: made anew each time, of all that is live then."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import structlog
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.engine.tasks import Reported, Stored, report_blobs
from pgo_collector.errors import NothingToMerge, ReleaseDamaged
from pgo_collector.merges.live import files_of, live_blobs
from pgo_collector.releases.folder import Releases
from pgo_collector.store.blobs import Series
from pgo_collector.store.store import Store, not_stored

_log = structlog.get_logger()


class SeriesReport:
    """Reports on the merge of all live blobs of one series."""

    def __init__(self, store: Store, series: Series) -> None:
        self.store = store
        self._series = series
        self._releases = Releases(store.folder, series)

    async def make(self, symbols: Path | None = None) -> Reported:
        """The report as of now; `symbols` is a file with the functions of a program.

        Raises SymbolsUnreadable, NothingToMerge, NotStored or WorkerLost.
        """
        try:
            blobs = await asyncio.to_thread(self._live)
            start = time.perf_counter()
            released = await asyncio.to_thread(self._released)
            made = await self.store.workers.run(report_blobs, blobs, symbols, released, time.time_ns())
        except (OSError, SQLAlchemyError) as error:
            raise not_stored("report", error) from error
        _log.info("reported", blobs=len(blobs), ms=round((time.perf_counter() - start) * 1000, 1))
        if made.report is None:
            raise NothingToMerge(f"none of the {len(blobs)} stored profiles can be read")
        return made

    def _released(self) -> Path | None:
        """The profile of the current release, to compare with."""
        with suppress(ReleaseDamaged):
            choice = self._releases.choice()
            return None if choice is None else self._releases.profile(choice.number)
        return None

    def _live(self) -> list[Stored]:
        return files_of(self.store, live_blobs(self.store, self._series))
