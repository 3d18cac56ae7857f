"""Merges of selections: made when what they merge has changed, kept in merged/, and combined on request."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

import structlog
from pprof_merge import UNBOUNDED, Budget
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.catalog.catalog import Merge
from pgo_collector.catalog.rows import Blob
from pgo_collector.engine.renditions import Rendition
from pgo_collector.errors import NothingSelected
from pgo_collector.merges.combining import combine_blobs
from pgo_collector.merges.inputs import choose_now, chosen_of, fingerprint_of, live_blobs
from pgo_collector.merges.making import Locks, OpenMerge, make_merge
from pgo_collector.model.selection import Selection
from pgo_collector.store.garbage import tidy
from pgo_collector.store.store import Store, not_stored

# For so long a file that was found to be whole is taken to be so, as long as it is the same.
_TRUSTED_SECONDS = 600.0
_CHUNK_BYTES = 1 << 20
_log = structlog.get_logger()

# Inode, size in bytes, and times of its last changes in ns.
_FileIdentity = tuple[int, int, int, int]


class Merges:
    """The merges of all that is stored.

    An answer is within a `budget`; what a combine stores is no larger than what it was made from, and isn't
    bounded by it. Of a service and type, one is made at a time. Whoever waits for it looks again when it is
    done: most often it is then the one they want, and if a profile came in meanwhile, a single merge serves
    all.
    """

    def __init__(self, store: Store, locks: Locks, kept: int, budget: Budget = UNBOUNDED) -> None:
        self.store = store
        self.budget = budget
        self._kept = kept
        self._locks = locks
        self._checked = _Checked(kept)

    async def current(self, selection: Selection, form: Rendition) -> OpenMerge:
        """The merge as of now, which holds every profile answered for before the call.

        Raises NothingToMerge, NotOfThisProfile, AnswerTooLarge, NotStored or WorkerUnavailable.
        """
        try:
            found = await asyncio.to_thread(self._find, selection, form)
        except (OSError, SQLAlchemyError) as error:
            raise not_stored("merge", error) from error
        if found is not None:
            return found
        async with self._locks.of(selection.service, selection.type):
            return await self._current(selection, form)

    async def of(self, blobs: Sequence[Blob], form: Rendition) -> OpenMerge:
        """The merge of just these blobs, which are of one service and type. It isn't kept.

        Raises as `current` does.
        """
        series = blobs[0].name.series
        chosen = await asyncio.to_thread(chosen_of, self.store, series.service, series.type, blobs)
        async with self.store.part() as part:
            try:
                merged = await make_merge(self.store, chosen, form, part, self.budget)
                return await asyncio.to_thread(OpenMerge.at, part, merged.etag, merged.left_out)
            except OSError as error:
                raise not_stored("merge", error) from error

    async def combine(self, selection: Selection, form: Rendition) -> OpenMerge:
        """The merge as of now; and from now on each series stands in the store as one profile.

        Blobs that couldn't be read stay as they are, and so does what came in meanwhile. What is stored
        are the merges themselves, whatever the form. Raises as `current` does.
        """
        async with self._locks.of(selection.service, selection.type):
            try:
                blobs = await asyncio.to_thread(live_blobs, self.store, selection)
                ordered = sorted(blobs, key=lambda blob: blob.name.series)
                for _, of_series in groupby(ordered, key=lambda blob: blob.name.series):
                    own = [*of_series]
                    if len(own) > 1:
                        await combine_blobs(self.store, own)
                await tidy(self.store, selection.service, selection.type)
            except (OSError, SQLAlchemyError) as error:
                raise not_stored("merge", error) from error
            return await self._current(selection, form)

    async def _current(self, selection: Selection, form: Rendition) -> OpenMerge:
        try:
            return await asyncio.to_thread(self._find, selection, form) or await self._make(selection, form)
        except (OSError, SQLAlchemyError) as error:
            raise not_stored("merge", error) from error

    def _find(self, selection: Selection, form: Rendition) -> OpenMerge | None:
        """The merge that is kept, unless it lacks what was damaged, which may be mended."""
        catalog = self.store.catalog
        merge = catalog.merge(fingerprint_of(catalog.fingerprint(selection), form))
        if merge is None or any(left.is_damaged for left in merge.left_out):
            return None
        with suppress(FileNotFoundError):
            found = self._open(merge)
            if found.size == merge.size and self._checked.is_whole(merge, found.file):
                return found
            found.file.close()
            _log.warning("a merge is damaged, made anew", merge=merge.etag)
        return None

    async def _make(self, selection: Selection, form: Rendition) -> OpenMerge:
        store = self.store
        state, chosen = await asyncio.to_thread(choose_now, store, selection)
        if not len(chosen.blobs):
            raise NothingSelected
        async with store.part() as part:
            merged = await make_merge(store, chosen, form, part, self.budget)
            merge = Merge(fingerprint_of(state, form), merged.etag, *merged.written, merged.left_out)
            return await store.write(self._keep, merge, part)

    def _keep(self, merge: Merge, part: Path) -> OpenMerge:
        """Puts the file `part` into merged/, in the place of the oldest there."""
        folder = self.store.folder
        part.replace(folder.merged_file(merge.fingerprint))
        for fingerprint in self.store.catalog.remember(merge, self._kept):
            folder.merged_file(fingerprint).unlink(missing_ok=True)
        return self._open(merge)

    def _open(self, merge: Merge) -> OpenMerge:
        return OpenMerge.at(self.store.folder.merged_file(merge.fingerprint), merge.etag, merge.left_out)


class _Checked:
    """Which files of merged/ were found to be whole, and when.

    The SHA-256 takes CPU that grows with the size of a merge. So it is looked at when
    the file is first served by this process, when it isn't the same file any more, and again after a while:
    what the kernel still has in memory doesn't change on its own.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, tuple[_FileIdentity, float]] = {}

    def is_whole(self, merge: Merge, file: BinaryIO) -> bool:
        """Whether the file, which is at its begin, is as it was written. Raises OSError."""
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
