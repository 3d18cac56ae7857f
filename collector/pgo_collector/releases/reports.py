"""Reports: the report on the merge of a selection, made anew for each request and for each release."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import structlog
from pprof_merge import Budget
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.engine.tasks import Reported, report_blobs
from pgo_collector.errors import NothingToMerge, ReleaseDamaged
from pgo_collector.merges.inputs import chosen_of, live_blobs
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import Series
from pgo_collector.releases.folder import Releases
from pgo_collector.store.store import Store, not_stored

_log = structlog.get_logger()


class Reports:
    """Makes reports on merges of stored profiles, within a budget."""

    def __init__(self, store: Store, budget: Budget) -> None:
        self.store = store
        self.budget = budget

    async def make(self, selection: Selection, symbols: Path | None = None) -> Reported:
        """Return the current report on a selection; `symbols` is a file with the functions of a program.

        Raises SymbolsUnreadable, NothingToMerge, AnswerTooLarge, NotStored or WorkerUnavailable.
        """
        try:
            blobs = await asyncio.to_thread(live_blobs, self.store, selection)
            start = time.perf_counter()
            released = await asyncio.to_thread(self._released, selection)
            chosen = await asyncio.to_thread(chosen_of, self.store, selection.service, selection.type, blobs)
            made = await self.store.workers.run_for(
                chosen.owner, report_blobs, chosen, symbols, released, time.time_ns(), self.budget
            )
        except (OSError, SQLAlchemyError) as error:
            raise not_stored("report", error) from error
        _log.info("reported", blobs=len(blobs), ms=round((time.perf_counter() - start) * 1000, 1))
        if made.report is None:
            raise NothingToMerge(f"none of the {len(blobs)} stored profiles can be read")
        return made

    def _released(self, selection: Selection) -> Path | None:
        """Return the path of the current release's profile, to compare with; None if there is none."""
        releases = Releases(self.store.folder, Series(selection.service, selection.type))
        with suppress(ReleaseDamaged):
            choice = releases.choice()
            return None if choice is None else releases.profile(choice.number)
        return None
