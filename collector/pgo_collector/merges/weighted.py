"""Weighted merges of a series: made of its blobs, and kept in merged/ until those, or the rules, change."""

from __future__ import annotations

import asyncio
import hashlib
import time
from contextlib import suppress
from pathlib import Path

import structlog
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.engine.forms import Form
from pgo_collector.engine.tasks import weigh_blobs
from pgo_collector.errors import NothingToMerge
from pgo_collector.merges.live import files_of, fingerprint_of, live_blobs, sizes_of
from pgo_collector.merges.open_merge import OpenMerge
from pgo_collector.store.blobs import Series
from pgo_collector.store.catalog import WeightedMerge
from pgo_collector.store.store import Store, not_stored

_log = structlog.get_logger()


class WeightedMerges:
    """The merges of all live blobs of one series in which not all count as they are.

    `merging` is held while one is made: meanwhile no other is, and no combine takes the blobs away.
    """

    def __init__(self, store: Store, series: Series, merging: asyncio.Lock) -> None:
        self._store = store
        self._series = series
        self._merging = merging

    async def current(self, form: Form) -> OpenMerge:
        """The merge as of now. Raises NothingToMerge, NotOfThisProfile, NotStored or WorkerLost."""
        return await asyncio.to_thread(self._find, form) or await self._make(form)

    def _find(self, form: Form) -> OpenMerge | None:
        store = self._store
        sizes = sizes_of(store, live_blobs(store, self._series))
        merge = store.catalog.weighted(_fingerprint(fingerprint_of(sizes), form))
        if merge is None:
            return None
        with suppress(FileNotFoundError):
            return OpenMerge.at(store.folder.converted_file(merge.fingerprint), merge.etag, merge.left_out)
        return None

    async def _make(self, form: Form) -> OpenMerge:
        async with self._merging:
            try:
                return await asyncio.to_thread(self._find, form) or await self._weigh(form)
            except (OSError, SQLAlchemyError) as error:
                raise not_stored("merge", error) from error

    async def _weigh(self, form: Form) -> OpenMerge:
        store = self._store
        blobs = await asyncio.to_thread(live_blobs, store, self._series)
        inputs = fingerprint_of(await asyncio.to_thread(sizes_of, store, blobs))
        async with store.part() as part:
            start = time.perf_counter()
            made = await store.workers.run(weigh_blobs, files_of(store, blobs), form, part)
            ms = round((time.perf_counter() - start) * 1000, 1)
            _log.info("weighed", blobs=len(blobs), weight=form.weighting.by, format=form.format.name, ms=ms)
            for left in made.left_out:
                _log.warning("left out of the merge", blob=left.blob, reason=left.reason)
            if made.digest is None:
                raise NothingToMerge(
                    f"none of the {len(blobs)} stored profiles can be taken: {made.left_out[0].reason}"
                )
            merge = WeightedMerge(
                series=self._series,
                fingerprint=_fingerprint(inputs, form),
                inputs=inputs,
                format=form.format.name,
                weight=form.weighting.by,
                etag=f"{made.digest}-{form.format.name}",
                left_out=made.left_out,
            )
            return await store.write(self._keep, merge, part)

    def _keep(self, merge: WeightedMerge, part: Path) -> OpenMerge:
        """Puts the file `part` into merged/, in the place of those of other blobs, and of its like."""
        folder, catalog = self._store.folder, self._store.catalog
        path = folder.converted_file(merge.fingerprint)
        part.replace(path)
        catalog.remember_weighted(merge)
        folder.sweep_merged(catalog.fingerprints())
        return OpenMerge.at(path, merge.etag, merge.left_out)


def _fingerprint(inputs: str, form: Form) -> str:
    """What a weighted merge depends on; `inputs` says of which blobs it is, and who makes it."""
    weighting = form.weighting
    parts = (inputs, weighting.by, str(weighting.half_life), form.format.name, str(form.rules))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
