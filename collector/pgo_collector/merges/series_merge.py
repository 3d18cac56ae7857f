"""The merge of a series: made when what it merges has changed, kept in merged/, and combined on request.

A form of it is made of that file, when it or the rules have changed, and kept beside it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import structlog
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.engine.forms import Form
from pgo_collector.engine.tasks import Facts, merge_blobs
from pgo_collector.errors import MergeDamaged, NothingToMerge
from pgo_collector.merges.conversions import Conversions
from pgo_collector.merges.live import files_of, fingerprint_of, live_blobs, sizes_of
from pgo_collector.merges.open_merge import OpenMerge
from pgo_collector.merges.weighted import WeightedMerges
from pgo_collector.store.blobs import BlobName, Identity, Series
from pgo_collector.store.catalog import Blob, Merge
from pgo_collector.store.retired import delete_retired
from pgo_collector.store.store import Store, not_stored

_log = structlog.get_logger()


class SeriesMerge:
    """The merge of all live blobs of one series.

    One merge is made at a time. Whoever waits for it looks again when it is done: most often it is then
    the one they want, and if a profile came in meanwhile, a single merge serves all who wait.
    """

    def __init__(self, store: Store, series: Series) -> None:
        self.series = series
        self._store = store
        self._conversions = Conversions(store)
        self._merging = asyncio.Lock()
        self._weighted = WeightedMerges(store, series, self._merging)

    async def current(self, form: Form) -> OpenMerge:
        """The merge as of now, which holds every profile answered for before the call.

        Raises NothingToMerge, NotOfThisProfile, NotStored or WorkerLost.
        """
        if not form.weighting.is_plain:
            return await self._weighted.current(form)
        return await asyncio.to_thread(self._find, form) or await self._make(form, combine=False)

    async def combine(self, form: Form) -> OpenMerge:
        """The merge as of now, which from now on stands in the store in place of what it merged.

        Blobs that couldn't be read stay as they are, and so does what came in meanwhile. What is stored
        is the merge itself, whatever the form. Raises as `current` does.
        """
        return await self._make(form, combine=True)

    def _live(self) -> list[Blob]:
        return live_blobs(self._store, self.series)

    def _last(self) -> Merge | None:
        """The last merge, if it is of what is live now."""
        return self._store.catalog.merge(fingerprint_of(sizes_of(self._store, self._live())))

    def _find(self, form: Form) -> OpenMerge | None:
        merge = self._last()
        try:
            return None if merge is None else self._open(merge, form)
        except FileNotFoundError:
            return None

    def _open(self, merge: Merge, form: Form) -> OpenMerge:
        etag, path = self._conversions.place(merge, form)
        return OpenMerge.at(path, etag, merge.left_out)

    async def _make(self, form: Form, *, combine: bool) -> OpenMerge:
        """Makes what isn't kept, of the merge and of its form."""
        async with self._merging:
            try:
                merge = await asyncio.to_thread(self._reusable, combine=combine)
                if merge is None:
                    merge = await self._merge(combine=combine)
                return await self._in_form(merge, form)
            except (OSError, SQLAlchemyError) as error:
                raise not_stored("merge", error) from error

    def _reusable(self, *, combine: bool) -> Merge | None:
        """The last merge, if its file is there and, for a combine, nothing is left to combine."""
        merge = self._last()
        if merge is None or (combine and len(self._live()) > 1):
            return None
        return merge if self._store.folder.merged_file(merge.fingerprint).exists() else None

    async def _in_form(self, merge: Merge, form: Form) -> OpenMerge:
        with suppress(FileNotFoundError):
            return await asyncio.to_thread(self._open, merge, form)
        try:
            await self._conversions.make(merge, form)
        except MergeDamaged as error:
            _log.warning("the last merge is damaged, made anew", reason=str(error))
            merge = await self._merge(combine=False)
            await self._conversions.make(merge, form)
        return await asyncio.to_thread(self._open, merge, form)

    async def _merge(self, *, combine: bool) -> Merge:
        store = self._store
        blobs = await asyncio.to_thread(self._live)
        sizes = await asyncio.to_thread(sizes_of, store, blobs)
        async with store.part() as part:
            start = time.perf_counter()
            merged = await store.workers.run(merge_blobs, files_of(store, blobs), part)
            _log.info("merged", blobs=len(blobs), ms=round((time.perf_counter() - start) * 1000, 1))
            for left in merged.left_out:
                _log.warning("left out of the merge", blob=left.blob, reason=left.reason)
            if merged.facts is None:
                raise NothingToMerge(f"none of the {len(blobs)} stored profiles can be read")
            left_out = {left.blob for left in merged.left_out}
            taken = [blob for blob in blobs if str(blob.name) not in left_out]
            if combine and len(taken) > 1:
                combined = await store.write(self._replace, taken, merged.facts, part)
                if combined is not None:
                    sizes = {name: size for name, size in sizes.items() if str(name) in left_out}
                    sizes[combined] = merged.facts.size
            merge = Merge(self.series, fingerprint_of(sizes), merged.facts.digest, merged.left_out)
            await store.write(self._keep, merge, part)
        if combine:
            await delete_retired(store)
        return merge

    def _replace(self, taken: list[Blob], facts: Facts, part: Path) -> BlobName | None:
        """Puts the merge in the place of the blobs that are in it; None if its name is taken meanwhile.

        If this fails in the middle, what it wrote stays: it isn't known to the catalog, or the catalog
        goes by it alone, and the next start sees which and finishes or removes it.
        """
        store, series = self._store, self.series
        name = BlobName(series, Identity(facts.time_nanos, facts.digest))
        ids = {blob.id for blob in taken}
        owners = store.catalog.owners(series)
        inputs = {identity for identity, blob in owners.items() if blob in ids} | {name.identity}
        if any(blob.name == name for blob in taken):  # the others added nothing to it
            inputs_size = store.blobs.write_inputs(name, inputs)
        elif name.identity in owners:  # someone submitted this very merge: the next combine takes it in
            return None
        else:
            store.blobs.discard(name)  # what may be there of a combine that failed
            inputs_size = store.blobs.keep(part, name, inputs)
        store.catalog.replace(name, facts, inputs_size, inputs, ids)
        _log.info("combined", blob=str(name), blobs=len(taken))
        return name

    def _keep(self, merge: Merge, part: Path) -> None:
        """Puts the file `part` into merged/, in the place of the merge before."""
        folder, catalog = self._store.folder, self._store.catalog
        part.replace(folder.merged_file(merge.fingerprint))
        catalog.remember(merge)
        folder.sweep_merged(catalog.fingerprints())
