"""Reports: the report on the merge of a selection, made for each request and for each release."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import structlog
from pprof_merge import Budget, Weighting
from pprof_merge.analysis import KeptApart
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.blobs.storage import StoredObject
from pgo_collector.engine.tasks import ReportResult, ReportSubjects, report_blobs
from pgo_collector.errors import NothingToMerge, ReleaseDamaged
from pgo_collector.merges.inputs import check_services, chosen_of, count_kept_apart, nothing_selected
from pgo_collector.merges.rules_folder import RulesFolder
from pgo_collector.model.profile_types import KEPT_APART, PROCESS_CPU
from pgo_collector.model.selection import Coarse, Selection
from pgo_collector.model.series import Series
from pgo_collector.model.services import ServiceWeights, release_folder
from pgo_collector.releases.folder import Releases
from pgo_collector.store.binaries import HELPED_FORMAT, Binaries
from pgo_collector.store.store import Store, not_stored
from pgo_collector.workers.blob_tasks import BlobTasks, until_none_is_gone

_log = structlog.get_logger()


class Reports:
    """Makes reports on merges of stored profiles, within a budget."""

    def __init__(
        self, store: Store, tasks: BlobTasks, rules: RulesFolder, binaries: Binaries, budget: Budget
    ) -> None:
        self.store = store
        self._tasks = tasks
        self._rules, self._binaries = rules, binaries
        self.budget = budget

    async def make(
        self, selection: Selection, symbols: Path | None = None, weights: ServiceWeights = ()
    ) -> tuple[ReportResult, Coarse]:
        """Return the current report on a selection, and where it covers more than the selection.

        `symbols` is a file with the functions of a program, `weights` are those of several services.

        Raises RulesUnreadable, SymbolsUnreadable, NothingToMerge, AnswerTooLarge, BlobsGone, NotStored or
        WorkerUnavailable.
        """
        try:
            return await until_none_is_gone(lambda: self._make(selection, symbols, weights))
        except (OSError, SQLAlchemyError) as error:
            raise not_stored("report", error) from error

    async def _make(
        self, selection: Selection, symbols: Path | None, weights: ServiceWeights
    ) -> tuple[ReportResult, Coarse]:
        await asyncio.to_thread(check_services, self.store.catalog, selection.service)
        state, blobs = await asyncio.to_thread(self.store.catalog.resolve, selection)
        if blobs is None or not blobs.times:
            raise await asyncio.to_thread(nothing_selected, self.store.catalog, selection)
        chosen = chosen_of(self.store.blobs.storage, selection, blobs)
        count = len(chosen.blobs)
        start = time.perf_counter()
        released = await asyncio.to_thread(self._released, selection, weights)
        apart = await asyncio.to_thread(self._kept_apart, selection)
        rules = await asyncio.to_thread(self._rules.of, selection.service)
        binaries = await self._binaries.choice(selection.service, HELPED_FORMAT)
        subjects = ReportSubjects(symbols, released, apart, rules, binaries, Weighting(services=weights))
        made = await self._tasks.run(report_blobs, chosen, subjects, time.time_ns(), self.budget)
        _log.info("report made", blobs=count, ms=round((time.perf_counter() - start) * 1000, 1))
        if made.report is None:
            raise NothingToMerge(f"none of the {count} stored profiles can be read")
        return made, state.coarse

    def _kept_apart(self, selection: Selection) -> KeptApart | None:
        """Return what was kept out of the merge since no compiler can use it; None if nothing was."""
        count = count_kept_apart(self.store.catalog, selection)
        return KeptApart(count, PROCESS_CPU, KEPT_APART) if count else None

    def _released(self, selection: Selection, weights: ServiceWeights) -> StoredObject | None:
        """Return the current release's profile, to compare with; None if there is none."""
        releases = Releases(
            self.store.blobs.storage, Series(release_folder(selection.service, weights), selection.type)
        )
        with suppress(ReleaseDamaged):
            choice = releases.choice()
            return None if choice is None else releases.profile(choice.number)
        return None
