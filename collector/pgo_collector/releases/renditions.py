"""Renditions: releases in other formats, made when they are first requested and kept as long as the release.

They aren't a cache: another version of the collector may write a format differently, and a program that is
uploaded later may make llvm better, but a pipeline must get the same bytes.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from typing import BinaryIO

import structlog
from pprof_merge import Budget
from pprof_merge.analysis import Rules
from pprof_merge.formats import Format

from pgo_collector.engine.renditions import PLAIN_RENDITION, Rendition
from pgo_collector.engine.tasks import convert
from pgo_collector.releases import records
from pgo_collector.releases.folder import Releases
from pgo_collector.store.binaries import Binaries

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class OpenRelease:
    """A release in some format, in an open file of `size` bytes, at its beginning."""

    number: int
    etag: str
    size: int
    file: BinaryIO


class ReleaseRenditions:
    """The renditions of the releases of a service."""

    def __init__(self, service: str, releases: Releases, binaries: Binaries, budget: Budget) -> None:
        self._service = service
        self._binaries = binaries
        self._budget = budget
        self._store, self._workers = binaries.store, binaries.workers
        self._releases = releases
        self._making = asyncio.Lock()

    async def open(self, release: records.Release, wanted: Format) -> OpenRelease:
        """Open a release in a format; make the rendition first if there is none yet.

        Raises NoSuchRelease if the release is deleted, NotOfThisProfile, AnswerTooLarge, ReleaseDamaged,
        WorkerUnavailable or OSError.
        """
        if wanted == PLAIN_RENDITION.format:
            return _opened(release, release.etag, await asyncio.to_thread(self._releases.open, release))
        async with self._making:
            etag = await asyncio.to_thread(self._releases.rendition, release, wanted.name)
            if etag is None:
                etag = await self._make(release, wanted)
            file = await asyncio.to_thread(self._releases.open_rendition, release, etag)
            return _opened(release, etag, file)

    async def _make(self, release: records.Release, wanted: Format) -> str:
        """Make and store a rendition. Return its etag."""
        store = self._store
        # The release already has the rules of its time applied.
        helped = await self._binaries.choice(self._service, wanted.name)
        rendition = Rendition(wanted, Rules(), binaries=helped)
        (await asyncio.to_thread(self._releases.open, release)).close()
        async with store.part() as part:
            start = time.perf_counter()
            profile = self._releases.profile(release.number)
            digest = await self._workers.run(convert, profile, release.digest, rendition, part, self._budget)
            _log.info(
                "release converted", format=wanted.name, ms=round((time.perf_counter() - start) * 1000, 1)
            )
            etag = f"{digest}-{wanted.name}"
            await store.write_area(self._releases.add_rendition, release, etag, part)
        # Another collector may have stored one first.
        return await asyncio.to_thread(self._releases.rendition, release, wanted.name) or etag


def _opened(release: records.Release, etag: str, file: BinaryIO) -> OpenRelease:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return OpenRelease(release.number, etag, size, file)
