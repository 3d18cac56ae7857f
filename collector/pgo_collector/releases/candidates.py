"""Candidates: the current merge of a service, by its rules, compared with the current release."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
from pprof_merge import Weighting

from pgo_collector.blobs.files import delete_or_log
from pgo_collector.blobs.storage import StoredObject
from pgo_collector.engine.renditions import PLAIN_RENDITION
from pgo_collector.engine.tasks import CandidateStats, candidate_stats
from pgo_collector.errors import MergeDamaged
from pgo_collector.merges.making import OpenMerge
from pgo_collector.merges.merges import Merges
from pgo_collector.merges.rules_folder import RulesFolder
from pgo_collector.model.profile_types import CPU
from pgo_collector.model.selection import Selection
from pgo_collector.model.services import ServiceWeights

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A merge that could be released.

    `left_out` is the number of blobs that the merge had to leave out, `part` a file with a copy of it.
    """

    etag: str
    left_out: int
    stats: CandidateStats
    part: Path


class Candidates:
    """Makes the candidates of one service, or of several with these weights."""

    def __init__(self, merges: Merges, service: str, weights: ServiceWeights, rules: RulesFolder) -> None:
        self._store = merges.store
        self._workers = merges.tasks.workers
        self._merges = merges
        self._selection = Selection(service, CPU)
        self._weighting = Weighting(services=weights)
        self._rules = rules
        self._budget = merges.budget

    async def merged(self) -> OpenMerge:
        """Return the current merge. Raises as `Merges.current` does, and RulesUnreadable."""
        rules = await asyncio.to_thread(self._rules.of, self._selection.service)
        rendition = replace(PLAIN_RENDITION, rules=rules, weighting=self._weighting)
        return await self._merges.current(self._selection, rendition)

    @asynccontextmanager
    async def compared(self, merge: OpenMerge, release: StoredObject | None) -> AsyncIterator[Candidate]:
        """Return a merge compared with a release, for a context; leaving the context removes its file.

        A damaged merge is made again once. Raises MergeDamaged, OSError, and as `merged` does.
        """
        async with self._store.part() as part:
            try:
                candidate = await self._compare(merge, release, part)
            except MergeDamaged as error:
                _log.warning("compared merge damaged", reason=str(error))
                await asyncio.to_thread(delete_or_log, Path(merge.file.name))
                candidate = await self._compare(await self.merged(), release, part)
            yield candidate

    async def _compare(self, merge: OpenMerge, release: StoredObject | None, part: Path) -> Candidate:
        await asyncio.to_thread(_copy, merge, part)
        found = await self._workers.run(candidate_stats, part, release, self._budget)
        if merge.etag not in {found.digest, f"{found.sha256}-{PLAIN_RENDITION.format.name}"}:
            raise MergeDamaged("its content doesn't match its etag")
        return Candidate(merge.etag, merge.n_left_out, found, part)


def _copy(merge: OpenMerge, part: Path) -> None:
    with merge.file as source, part.open("wb") as file:
        shutil.copyfileobj(source, file)
        file.truncate(merge.size)
