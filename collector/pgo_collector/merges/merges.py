"""Merges of selections: made when the selected blobs have changed, kept in merged/, combined on request."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, NamedTuple

import structlog
from pprof_merge import UNBOUNDED, Budget
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.catalog.catalog import Merge
from pgo_collector.catalog.fingerprint_cache import SelectionState
from pgo_collector.catalog.rows import Blob
from pgo_collector.engine.merge_inputs import ChosenBlobs
from pgo_collector.engine.renditions import Rendition
from pgo_collector.merges.combining import combine_blobs
from pgo_collector.merges.inputs import chosen_of, fingerprint_of, nothing_selected
from pgo_collector.merges.making import OpenMerge, make_merge
from pgo_collector.model.selection import EXACT, Coarse, Selection
from pgo_collector.store.garbage import collect_garbage, delete_live
from pgo_collector.store.locks import Locks
from pgo_collector.store.store import Store, not_stored
from pgo_collector.traces.spans import place, span

# How long a file counts as whole after a check, as long as it is the same file.
_TRUSTED_SECONDS = 600.0
_CHUNK_BYTES = 1 << 20
_log = structlog.get_logger()

# Inode, size in bytes, and the times of its last modification and change, in ns.
_FileIdentity = tuple[int, int, int, int]


class _Resolved(NamedTuple):
    """A selection at one moment: its state, the fingerprint of its merge, and the blobs to merge."""

    state: SelectionState
    fingerprint: str
    chosen: ChosenBlobs


class Merges:
    """Makes the merges of a store, keeps the newest `kept` of them, and combines.

    `budget` bounds answers; the merge that a combine stores isn't bounded, since it is no larger than its
    inputs. One merge at a time is made for a service and type. A request that had to wait looks again when
    its turn comes: usually the merge is there by then, and if profiles came in meanwhile, one merge serves
    all requests that waited.
    """

    def __init__(self, store: Store, locks: Locks, kept: int, budget: Budget = UNBOUNDED) -> None:
        self.store = store
        self.budget = budget
        self._kept = kept
        self._locks = locks
        self._checked = _Checked(kept)

    async def current(self, selection: Selection, rendition: Rendition) -> OpenMerge:
        """Return the current merge, which has every profile that was stored before the call.

        Raises NothingToMerge, NotOfThisProfile, AnswerTooLarge, NotStored or WorkerUnavailable.
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
                # While it waited, the merge may have been made. If blobs came or went since the catalog was
                # read, the files of some may be gone; as long as it has the lock, none are deleted.
                if has_to_wait or self.store.catalog.known_state(selection) != found.state:
                    return await self._find_or_make(selection, rendition)
                return await self._make(found, rendition)

    async def of(self, blobs: Sequence[Blob], rendition: Rendition, coarse: Coarse = EXACT) -> OpenMerge:
        """Return the merge of exactly these blobs, which must be of one service and type. It isn't kept.

        Raises as `current` does.
        """
        series = blobs[0].name.series
        with _storage_errors():
            chosen = await asyncio.to_thread(chosen_of, self.store, series.service, series.type, blobs)
            async with self.store.part() as part:
                merged = await make_merge(self.store, chosen, rendition, part, self.budget)
                return await asyncio.to_thread(OpenMerge.at, part, merged.etag, merged.left_out, coarse)

    async def of_newest(self, selection: Selection, most: int, rendition: Rendition) -> OpenMerge:
        """Return the merge of the newest blobs of a selection, no more than `most`. It isn't kept.

        Raises as `current` does.
        """
        with _storage_errors():
            async with self._locks.of(selection.service, selection.type):
                state, blobs = await asyncio.to_thread(self.store.catalog.resolve_newest, selection, most)
                if not blobs:
                    raise await asyncio.to_thread(nothing_selected, self.store.catalog, selection)
                coarse = replace(state.coarse, blobs=state.coarse.blobs & {blob.id for blob in blobs})
                return await self.of(blobs, rendition, coarse)

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
                        await combine_blobs(self.store, lease, own)
                await collect_garbage(self.store, lease, selection.service, selection.type)
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
                await delete_live(self.store, lease, service, type_, blobs)

    async def _find_or_make(self, selection: Selection, rendition: Rendition) -> OpenMerge:
        found = await asyncio.to_thread(self._find, selection, rendition)
        return found if isinstance(found, OpenMerge) else await self._make(found, rendition)

    def _find(self, selection: Selection, rendition: Rendition) -> OpenMerge | _Resolved:
        """Return the kept merge of a selection, or what there is to merge, from one read of the catalog.

        A kept merge that left out damaged blobs is made again, since they may be repaired by now; so is one
        whose own file is damaged. Raises NothingSelected.
        """
        catalog = self.store.catalog

        def take(blobs: Iterator[Blob]) -> ChosenBlobs:
            return chosen_of(self.store, selection.service, selection.type, blobs)

        def kept_as(blobs: str) -> str:
            return fingerprint_of(blobs, rendition)

        known = catalog.known_state(selection)
        if known is not None:
            merge = catalog.merge(kept_as(known.fingerprint))
            if merge is not None and (opened := self._opened(merge, known.coarse)) is not None:
                return opened
        state, found = catalog.resolve_merge(selection, take, kept_as)
        if not isinstance(found, Merge):
            chosen = found
        elif (opened := self._opened(found, state.coarse)) is not None:
            return opened
        else:
            state, chosen = catalog.resolve(selection, take)
        if not len(chosen.blobs):
            raise nothing_selected(catalog, selection)
        return _Resolved(state, kept_as(state.fingerprint), chosen)

    def _opened(self, merge: Merge, coarse: Coarse) -> OpenMerge | None:
        """Return the open file of a kept merge, or None if it has to be made again."""
        if any(left.is_damaged for left in merge.left_out):
            return None
        with suppress(FileNotFoundError):
            opened = self._open(merge, coarse)
            if opened.size == merge.size and self._checked.is_whole(merge, opened.file):
                return opened
            opened.file.close()
            _log.warning("a merge is damaged, made anew", merge=merge.etag)
        return None

    async def _make(self, resolved: _Resolved, rendition: Rendition) -> OpenMerge:
        async with self.store.part() as part:
            made = await make_merge(self.store, resolved.chosen, rendition, part, self.budget)
            merge = Merge(resolved.fingerprint, made.etag, *made.written, made.left_out)
            return await self.store.write(self._keep, merge, resolved.state.coarse, part)

    def _keep(self, merge: Merge, coarse: Coarse, part: Path) -> OpenMerge:
        """Move the file `part` to merged/, and delete the oldest merges beyond the bound."""
        folder = self.store.folder
        part.replace(folder.merged_file(merge.fingerprint))
        for fingerprint in self.store.catalog.keep_merge(merge, self._kept):
            folder.merged_file(fingerprint).unlink(missing_ok=True)
        return self._open(merge, coarse)

    def _open(self, merge: Merge, coarse: Coarse) -> OpenMerge:
        path = self.store.folder.merged_file(merge.fingerprint)
        return OpenMerge.at(path, merge.etag, merge.left_out, coarse)


@contextmanager
def _storage_errors() -> Iterator[None]:
    """Turn failures of the disk or the catalog into refusals."""
    try:
        yield
    except (OSError, SQLAlchemyError) as error:
        raise not_stored("merge", error) from error


class _Checked:
    """The files of merged/ that were found to be whole, and when.

    Checking the SHA-256 costs CPU time in proportion to the size. So a file is checked when this process
    first serves it, when it isn't the same file any more, and again after a while: its pages in the kernel's
    memory don't change on their own.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, tuple[_FileIdentity, float]] = {}

    def is_whole(self, merge: Merge, file: BinaryIO) -> bool:
        """Return whether a file, opened at its beginning, is as it was written. Raises OSError."""
        found = os.fstat(file.fileno())
        identity = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        known, at = self._known.get(merge.fingerprint, (None, 0.0))
        if known == identity and time.monotonic() - at < _TRUSTED_SECONDS:
            return True
        self._known.pop(merge.fingerprint, None)
        if _sha256(file) != merge.sha256:
            return False
        file.seek(0)
        self._known[merge.fingerprint] = identity, time.monotonic()
        while len(self._known) > self._most:
            self._known.pop(next(iter(self._known)), None)
        return True


def _sha256(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()
