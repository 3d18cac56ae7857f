"""Merges of selections: made when what they merge has changed, kept in merged/, and combined on request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from weakref import WeakValueDictionary

import structlog
from pprof_merge.rules import Rules
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.engine.forms import Form, format_named
from pgo_collector.engine.tasks import Facts, Merged, forget, merge_blobs
from pgo_collector.errors import NothingToMerge
from pgo_collector.merges.live import chosen_of, fingerprint_of, live_blobs
from pgo_collector.merges.open_merge import OpenMerge
from pgo_collector.store.blobs import BlobName, Identity
from pgo_collector.store.catalog import Blob, Merge
from pgo_collector.store.retired import delete_retired
from pgo_collector.store.selection import Selection
from pgo_collector.store.series import Series
from pgo_collector.store.store import Store, not_stored

_log = structlog.get_logger()


class Merges:
    """The merges of all that is stored.

    Of a service and type, one is made at a time. Whoever waits for it looks again when it is done: most
    often it is then the one they want, and if a profile came in meanwhile, a single merge serves all.
    """

    def __init__(self, store: Store, kept: int) -> None:
        self.store = store
        self._kept = kept
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def current(self, selection: Selection, form: Form) -> OpenMerge:
        """The merge as of now, which holds every profile answered for before the call.

        Raises NothingToMerge, NotOfThisProfile, NotStored or WorkerLost.
        """
        found = await asyncio.to_thread(self._find, selection, form)
        if found is not None:
            return found
        async with self._lock(selection):
            return await self._current(selection, form)

    async def combine(self, selection: Selection, form: Form) -> OpenMerge:
        """The merge as of now; and from now on each series stands in the store as one profile.

        Blobs that couldn't be read stay as they are, and so does what came in meanwhile. What is stored
        are the merges themselves, whatever the form. Raises as `current` does.
        """
        async with self._lock(selection):
            try:
                blobs = await asyncio.to_thread(live_blobs, self.store, selection)
                for series, own in _by_series(blobs):
                    if len(own) > 1:
                        await self._combine(series, own)
                await delete_retired(self.store)
            except (OSError, SQLAlchemyError) as error:
                raise not_stored("merge", error) from error
            return await self._current(selection, form)

    def _lock(self, selection: Selection) -> asyncio.Lock:
        return self._locks.setdefault((selection.service, selection.type), asyncio.Lock())

    async def _current(self, selection: Selection, form: Form) -> OpenMerge:
        try:
            return await asyncio.to_thread(self._find, selection, form) or await self._make(selection, form)
        except (OSError, SQLAlchemyError) as error:
            raise not_stored("merge", error) from error

    def _find(self, selection: Selection, form: Form) -> OpenMerge | None:
        """The merge that is kept. One that lacks something isn't taken: it may be there again."""
        catalog = self.store.catalog
        merge = catalog.merge(fingerprint_of(catalog.fingerprint(selection), form))
        if merge is None or merge.left_out:
            return None
        with suppress(FileNotFoundError):
            return self._open(merge)
        return None

    async def _make(self, selection: Selection, form: Form) -> OpenMerge:
        store = self.store
        state, blobs = await asyncio.to_thread(store.catalog.state, selection)
        if not blobs:
            raise NothingToMerge("no such profile is stored")
        async with store.part() as part:
            merged = await self._merge(selection, blobs, form, part)
            merge = Merge(fingerprint_of(state, form), merged.etag, merged.left_out)
            return await store.write(self._keep, merge, part)

    async def _merge(self, selection: Selection, blobs: list[Blob], form: Form, part: Path) -> Merged:
        start = time.perf_counter()
        chosen = chosen_of(self.store, selection, blobs)
        merged = await self.store.workers.run_for(chosen.owner, merge_blobs, chosen, form, part)
        ms = round((time.perf_counter() - start) * 1000, 1)
        _log.info("merged", service=selection.service, blobs=len(blobs), format=form.format.name, ms=ms)
        for left in merged.left_out:
            _log.warning("left out of the merge", blob=left.blob, reason=left.reason)
        if merged.facts is None:
            why = merged.left_out[0].reason
            raise NothingToMerge(f"none of the {len(blobs)} stored profiles can be taken: {why}")
        return merged

    async def _combine(self, series: Series, blobs: list[Blob]) -> None:
        """Puts the merge of some blobs of a series in their place, as far as they can be read."""
        store, selection = self.store, Selection.of(series)
        async with store.part() as part:
            try:
                merged = await self._merge(selection, blobs, Form(format_named(), Rules()), part)
            except NothingToMerge:
                return
            left_out = {left.blob for left in merged.left_out}
            taken = [blob for blob in blobs if str(blob.name) not in left_out]
            if len(taken) > 1 and merged.facts is not None:
                await store.write(self._replace, series, taken, merged.facts, part)
        await store.workers.run_for(
            chosen_of(store, selection, ()).owner, forget, selection.service, selection.type
        )

    def _replace(self, series: Series, taken: list[Blob], facts: Facts, part: Path) -> None:
        """Puts the merge in the place of the blobs that are in it, unless its name is taken meanwhile.

        If this fails in the middle, what it wrote stays: it isn't known to the catalog, or the catalog
        goes by it alone, and the next start sees which and finishes or removes it.
        """
        store = self.store
        name = BlobName(series, Identity(facts.time_nanos, facts.digest))
        ids = {blob.id for blob in taken}
        owners = store.catalog.owners(series)
        inputs = {identity for identity, blob in owners.items() if blob in ids} | {name.identity}
        if any(blob.name == name for blob in taken):  # the others added nothing to it
            inputs_size = store.blobs.write_inputs(name, inputs)
        elif name.identity in owners:  # someone submitted this very merge: the next combine takes it in
            return
        else:
            store.blobs.discard(name)  # what may be there of a combine that failed
            inputs_size = store.blobs.keep(part, name, inputs)
        store.catalog.replace(name, facts, inputs_size, inputs, ids)
        _log.info("combined", blob=str(name), blobs=len(taken))

    def _keep(self, merge: Merge, part: Path) -> OpenMerge:
        """Puts the file `part` into merged/, in the place of the oldest there."""
        folder = self.store.folder
        part.replace(folder.merged_file(merge.fingerprint))
        for fingerprint in self.store.catalog.remember(merge, self._kept):
            folder.merged_file(fingerprint).unlink(missing_ok=True)
        return self._open(merge)

    def _open(self, merge: Merge) -> OpenMerge:
        return OpenMerge.at(self.store.folder.merged_file(merge.fingerprint), merge.etag, merge.left_out)


def _by_series(blobs: Iterable[Blob]) -> list[tuple[Series, list[Blob]]]:
    """The blobs of each series, in their order."""
    ordered = sorted(blobs, key=lambda blob: blob.name.series)
    return [(series, [*own]) for series, own in groupby(ordered, key=lambda blob: blob.name.series)]
