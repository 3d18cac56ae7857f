"""Merges of selections: made when the selected blobs have changed, kept in merged/, combined on request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from pprof_merge import UNBOUNDED, Budget
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.catalog.fingerprint_cache import SelectionState
from pgo_collector.catalog.rows import Blob
from pgo_collector.engine.merge_inputs import ChosenBlobs
from pgo_collector.engine.renditions import Rendition
from pgo_collector.engine.tasks import MergeResult
from pgo_collector.errors import BlobsGone
from pgo_collector.merges.combining import combine_blobs
from pgo_collector.merges.inputs import check_services, chosen_of, nothing_selected
from pgo_collector.merges.kept import KeptMerges, fingerprint_of
from pgo_collector.merges.making import OpenMerge, make_merge
from pgo_collector.model.selection import EXACT, Coarse, Selection
from pgo_collector.store.garbage import collect_garbage, delete_live
from pgo_collector.store.locks import Locks
from pgo_collector.store.store import Store, not_stored
from pgo_collector.traces.spans import place, span
from pgo_collector.workers.blob_tasks import BlobTasks, until_none_is_gone


class _Resolved(NamedTuple):
    """A selection at one moment: its state, the fingerprint of its merge, and the blobs to merge."""

    state: SelectionState
    fingerprint: str
    chosen: ChosenBlobs


class Merges:
    """Makes the merges of a store, keeps them, and combines.

    `budget` bounds answers; the merge that a combine stores isn't bounded, since it is no larger than its
    inputs. One merge at a time is made for a service and type. A request that had to wait looks again when
    its turn comes: usually the merge is there by then, and if profiles came in meanwhile, one merge serves
    all requests that waited.

    Blobs may be deleted between the read of the catalog and theirs, maybe by another collector. The merge is
    then made again of those that have replaced them.
    """

    def __init__(
        self, store: Store, tasks: BlobTasks, locks: Locks, kept: KeptMerges, budget: Budget = UNBOUNDED
    ) -> None:
        self.store = store
        self.tasks = tasks
        self.budget = budget
        self._kept = kept
        self._locks = locks

    async def current(self, selection: Selection, rendition: Rendition) -> OpenMerge:
        """Return the current merge, which has every profile that was stored before the call.

        Raises NothingToMerge, NotOfThisProfile, AnswerTooLarge, BlobsGone, NotStored or WorkerUnavailable.
        """
        with _storage_errors():
            with span("catalog", "resolve"):
                found = await asyncio.to_thread(self._find, selection, rendition)
            if isinstance(found, OpenMerge):
                return found
            lock = self._locks.of(selection.service, selection.type)
            has_to_wait, asked = lock.locked(), time.monotonic_ns()
            async with lock:
                if (there := place()) is not None:
                    there.add("workers", "turn", asked)
                # While it waited, the merge may have been made.
                if not has_to_wait and found.fingerprint not in self._kept:
                    with suppress(BlobsGone):
                        return await self._make(found, rendition)
                return await self._find_or_make(selection, rendition)

    async def of(self, blobs: Sequence[Blob], rendition: Rendition, coarse: Coarse = EXACT) -> OpenMerge:
        """Return the merge of exactly these blobs, which must be of one service and type. It isn't kept.

        Raises as `current` does.
        """
        series = blobs[0].name.series
        selection = Selection(series.service, series.type)
        with _storage_errors():
            storage = self.store.blobs.storage
            chosen = await asyncio.to_thread(chosen_of, storage, selection, blobs)
            async with self.store.part() as part:
                made = await make_merge(self.tasks, chosen, rendition, part, self.budget)
                return await asyncio.to_thread(OpenMerge.at, part, made, coarse)

    async def of_newest(self, selection: Selection, most: int, rendition: Rendition) -> OpenMerge:
        """Return the merge of the newest blobs of a selection, no more than `most`. It isn't kept.

        Raises as `current` does.
        """

        async def made() -> OpenMerge:
            state, blobs = await asyncio.to_thread(self.store.catalog.resolve_newest, selection, most)
            if not blobs:
                raise await asyncio.to_thread(nothing_selected, self.store.catalog, selection)
            coarse = replace(state.coarse, blobs=state.coarse.blobs & {blob.id for blob in blobs})
            return await self.of(blobs, rendition, coarse)

        with _storage_errors():
            async with self._locks.of(selection.service, selection.type):
                return await until_none_is_gone(made)

    async def combine(self, selection: Selection, rendition: Rendition) -> OpenMerge:
        """Combine each series of a selection into one stored profile, and return the merge afterwards.

        Blobs that can't be read stay as they are, and so do profiles that come in meanwhile. The combined
        profiles are plain merges; only the answer is in the rendition. Raises as `current` does.
        """
        with _storage_errors():
            async with self._locks.changing(selection.service, selection.type) as lease:
                blobs = await asyncio.to_thread(self.store.catalog.live, selection)
                if not blobs:
                    raise await asyncio.to_thread(nothing_selected, self.store.catalog, selection)
                ordered = sorted(blobs, key=lambda blob: blob.name.series)
                for _, of_series in groupby(ordered, key=lambda blob: blob.name.series):
                    own = [*of_series]
                    if len(own) > 1:
                        await combine_blobs(self.store, self.tasks, lease, own)
                await collect_garbage(self.store, self.tasks, lease, selection.service, selection.type)
                return await self._find_or_make(selection, rendition)

    async def delete(self, service: str, type_: str) -> None:
        """Delete all profiles of a service and type, and their merge. Releases stay.

        Profiles that come in meanwhile stay. Raises NothingSelected, NotStored or WorkerUnavailable.
        """
        with _storage_errors():
            async with self._locks.changing(service, type_) as lease:
                selection = Selection(service, type_)
                blobs = await asyncio.to_thread(self.store.catalog.live, selection)
                if not blobs:
                    raise await asyncio.to_thread(nothing_selected, self.store.catalog, selection)
                await delete_live(self.store, self.tasks, lease, (service, type_), blobs)

    async def _find_or_make(self, selection: Selection, rendition: Rendition) -> OpenMerge:
        async def made() -> OpenMerge:
            found = await asyncio.to_thread(self._find, selection, rendition)
            return found if isinstance(found, OpenMerge) else await self._make(found, rendition)

        return await until_none_is_gone(made)

    def _find(self, selection: Selection, rendition: Rendition) -> OpenMerge | _Resolved:
        """Return the kept merge of a selection, or what there is to merge, from one read of the catalog.

        Raises NothingSelected.
        """
        catalog = self.store.catalog
        symbols = self.tasks.symbols_of(selection.service).fingerprint if rendition.is_named else ""

        def is_wanted(state: SelectionState) -> bool:
            return fingerprint_of(state.fingerprint, rendition, symbols) not in self._kept

        state, blobs = catalog.known_state(selection), None
        if state is None:
            check_services(catalog, selection.service)
        while True:
            if state is not None:
                fingerprint = fingerprint_of(state.fingerprint, rendition, symbols)
                if blobs is not None:
                    chosen = chosen_of(self.store.blobs.storage, selection, blobs)
                    return _Resolved(state, fingerprint, chosen)
                if (opened := self._kept.open(fingerprint, state.coarse)) is not None:
                    return opened
            state, blobs = catalog.resolve(selection, is_wanted)
            if blobs is not None and not blobs.times:
                raise nothing_selected(catalog, selection)

    async def _make(self, resolved: _Resolved, rendition: Rendition) -> OpenMerge:
        async with self.store.part() as part:
            made = await make_merge(self.tasks, resolved.chosen, rendition, part, self.budget)
            keeping = asyncio.create_task(asyncio.to_thread(self._keep, resolved, part, made))
            try:
                return await asyncio.shield(keeping)
            except asyncio.CancelledError:
                await asyncio.wait([keeping])  # it uses the file, which is deleted as the block ends
                if keeping.exception() is None:
                    keeping.result().file.close()
                raise

    def _keep(self, resolved: _Resolved, part: Path, made: MergeResult) -> OpenMerge:
        """Keep a merge that was just made in the file `part`, unless a damaged blob was left out.

        The blob may be repaired by the next time.
        """
        if any(left.is_damaged for left in made.left_out):
            return OpenMerge.at(part, made, resolved.state.coarse)
        with span("store", "keep"):
            self.store.folder.check_same_folder()
            return self._kept.keep(resolved.fingerprint, part, made, resolved.state.coarse)


@contextmanager
def _storage_errors() -> Iterator[None]:
    """Turn failures of the disk or the catalog into refusals."""
    try:
        yield
    except (OSError, SQLAlchemyError) as error:
        raise not_stored("merge", error) from error
