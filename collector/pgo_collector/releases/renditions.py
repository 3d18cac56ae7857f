"""Releases in other formats: made when they are first asked for, and then kept as long as the release.

They are no cache: another version of the collector might write a format otherwise, and a pipeline is to get
the same bytes.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from typing import BinaryIO

import structlog
from pprof_merge import Budget, Format, Rules

from pgo_collector.engine.renditions import Rendition
from pgo_collector.engine.tasks import convert
from pgo_collector.releases.folder import Releases
from pgo_collector.releases.release import Release
from pgo_collector.store.store import Store

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class OpenRelease:
    """A release to be read, in some format, from its own open file of `size` bytes."""

    number: int
    etag: str
    size: int
    file: BinaryIO


class ReleaseForms:
    """The forms of the releases of a series."""

    def __init__(self, store: Store, releases: Releases, budget: Budget) -> None:
        self._budget = budget
        self._store = store
        self._releases = releases
        self._making = asyncio.Lock()

    async def open(self, release: Release, wanted: Format) -> OpenRelease:
        """The release in a format.

        Raises NoSuchRelease if it is deleted, NotOfThisProfile, AnswerTooLarge, ReleaseDamaged,
        WorkerUnavailable or OSError.
        """
        form = Rendition(wanted, Rules())  # the rules of its day were applied on that day
        if form.is_plain:
            return _opened(release, release.etag, await asyncio.to_thread(self._releases.open, release))
        async with self._making:
            etag = await asyncio.to_thread(self._releases.form, release, wanted.name)
            if etag is None:
                etag = await self._make(release, form)
            return _opened(release, etag, await asyncio.to_thread(self._releases.open_form, release, etag))

    async def _make(self, release: Release, form: Rendition) -> str:
        """The etag of a form that is made and kept."""
        store, name = self._store, form.format.name
        (await asyncio.to_thread(self._releases.open, release)).close()
        async with store.part() as part:
            start = time.perf_counter()
            profile = self._releases.profile(release.number)
            digest = await store.workers.run(convert, profile, release.digest, form, part, self._budget)
            _log.info("converted", format=name, ms=round((time.perf_counter() - start) * 1000, 1))
            etag = f"{digest}-{name}"
            await store.write(self._releases.add_form, release, etag, part)
        return etag


def _opened(release: Release, etag: str, file: BinaryIO) -> OpenRelease:
    return OpenRelease(release.number, etag, os.fstat(file.fileno()).st_size, file)
