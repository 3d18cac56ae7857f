"""Conversions: a merge in other forms, made of its file and kept beside it until it or the rules change."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import structlog

from pgo_collector.engine.forms import Form
from pgo_collector.engine.tasks import ENGINE, convert
from pgo_collector.store.catalog import Merge
from pgo_collector.store.store import Store

_log = structlog.get_logger()


class Conversions:
    """The forms of merges; the plain one is the merge itself."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def place(self, merge: Merge, form: Form) -> tuple[str, Path]:
        """Etag and file of a form of a merge. Raises FileNotFoundError if it isn't made yet."""
        folder = self._store.folder
        if form.is_plain:
            return merge.etag, folder.merged_file(merge.fingerprint)
        fingerprint = _fingerprint(merge, form)
        etag = self._store.catalog.conversion(fingerprint)
        if etag is None:
            raise FileNotFoundError(fingerprint)
        return etag, folder.converted_file(fingerprint)

    async def make(self, merge: Merge, form: Form) -> None:
        """Makes a form of a merge and keeps it.

        Raises NotOfThisProfile, MergeDamaged, WorkerLost, OSError, or SQLAlchemyError.
        """
        store = self._store
        path = store.folder.merged_file(merge.fingerprint)
        async with store.part() as part:
            start = time.perf_counter()
            digest = await store.workers.run(convert, path, merge.etag, form, part)
            ms = round((time.perf_counter() - start) * 1000, 1)
            _log.info("converted", format=form.format.name, ms=ms)
            await store.write(self._keep, merge, form, f"{digest}-{form.format.name}", part)

    def _keep(self, merge: Merge, form: Form, etag: str, part: Path) -> None:
        """Puts the file `part` into merged/, in the place of what is there of that format."""
        folder, catalog = self._store.folder, self._store.catalog
        fingerprint = _fingerprint(merge, form)
        part.replace(folder.converted_file(fingerprint))
        catalog.remember_conversion(merge, form.format.name, fingerprint, etag)
        folder.sweep_merged(catalog.fingerprints())


def _fingerprint(merge: Merge, form: Form) -> str:
    """What a form of a merge depends on: content and rules, and who writes it. A combine changes neither."""
    parts = (ENGINE, merge.etag, form.format.name, str(form.rules))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
