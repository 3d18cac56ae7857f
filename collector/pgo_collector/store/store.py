"""The store: blobs and catalog together, so that what is answered for is on disk and counted once."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, ParamSpec, Self, TypeVar

from pprof_merge import Limits
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.engine.tasks import Facts, receive
from pgo_collector.engine.workers import Workers
from pgo_collector.errors import CollectorError, NotStored
from pgo_collector.store.blobs import MISSING, BlobName, Blobs, Identity
from pgo_collector.store.catalog import Catalog
from pgo_collector.store.events import Announce, unannounced
from pgo_collector.store.folder import DataFolder, gzipped_part, remove_part
from pgo_collector.store.series import Series

P = ParamSpec("P")
T = TypeVar("T")


class Submitted(NamedTuple):
    """A profile that is stored: its facts, the name of its blob, and whether it wasn't stored before."""

    facts: Facts
    name: BlobName
    is_new: bool


class Store:
    """A locked data folder, its blobs, its catalog, and the workers that read them; a context manager.

    Whatever decides which blobs count runs on one thread, one step after another: see `write`.
    """

    def __init__(self, folder: DataFolder, workers: Workers, announce: Announce = unannounced) -> None:
        """Raises CatalogUnreadable."""
        self.folder = folder
        self.workers = workers
        self.announce = announce
        self.blobs = Blobs(folder)
        self.catalog = Catalog(folder.catalog)
        self._writer = ThreadPoolExecutor(1, "writer")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.shutdown()
        self.catalog.close()

    async def write(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a blocking function on the thread that all changes are made on."""
        return await asyncio.wrap_future(self._writer.submit(function, *args, **kwargs))

    @asynccontextmanager
    async def part(self) -> AsyncIterator[Path]:
        """A name for a file in incoming/; what has it at the end is removed."""
        part = self.folder.new_part()
        try:
            yield part
        finally:
            await asyncio.to_thread(remove_part, part)

    @asynccontextmanager
    async def arriving(self) -> AsyncIterator[Path]:
        """As `part`, for a profile: what `submit` has stored needn't be removed any more."""
        part = self.folder.new_part()
        try:
            yield part
        except BaseException:
            await asyncio.to_thread(remove_part, part)
            raise

    async def submit(
        self, part: Path, series: Series, limits: Limits, created_nanos: int | None = None
    ) -> Submitted:
        """Stores the profile in the file `part`, durably, and counts it, unless it is counted already. If
        this doesn't raise, the file is gone.

        A profile that doesn't say when it was taken was at `created_nanos`, or else now. Raises
        ProfileError, NotACPUProfile, NotStored or WorkerLost.
        """
        try:
            facts = await self.workers.run(receive, part, gzipped_part(part), series.type, limits)
            return await self.write(self._take, part, series, facts, created_nanos)
        except (OSError, SQLAlchemyError) as error:
            raise not_stored("profile", error) from error

    def _take(self, part: Path, series: Series, facts: Facts, created_nanos: int | None) -> Submitted:
        """As `count`; the file is gone then."""
        submitted = self.count(part, series, facts, created_nanos)
        part.unlink()
        return submitted

    def counted(self, names: Iterable[BlobName]) -> set[BlobName]:
        """Those of the profiles that are counted by a blob that is really there."""
        owners = self.catalog.owners(names)
        counting = self.catalog.with_ids(set(owners.values()))
        there = {blob.id for blob in counting if self.blobs.size(blob.name) != MISSING}
        return {name for name, blob in owners.items() if blob in there}

    def count(self, part: Path, series: Series, facts: Facts, created_nanos: int | None = None) -> Submitted:
        """Makes the file `part` the blob of a profile and counts it, unless it is counted; see `write`.

        The name is the one that it has, or would have if no combined blob counted it.
        """
        taken_nanos = facts.time_nanos or created_nanos or self._first_time(series, facts)
        name = BlobName(series, Identity(taken_nanos, facts.digest))
        counting = self.catalog.counting(name)
        if counting is not None:
            # The blob of a submit that failed at the very last, and was answered as failed, may be gone.
            if counting.name == name and self.blobs.size(name) == MISSING:
                self.blobs.keep(part, name)
            return Submitted(facts, name, is_new=False)
        self.blobs.discard(name)  # what may be there of one that didn't come to count
        self.blobs.keep(part, name)
        try:
            self.catalog.add((name, facts), events=self.announce(name, facts))
        except SQLAlchemyError:
            self.blobs.discard(name)
            raise
        return Submitted(facts, name, is_new=True)

    def _first_time(self, series: Series, facts: Facts) -> int:
        """When a profile without a time of its own came first: the same bytes once more are a retry."""
        return min(self.catalog.times(series, facts.digest), default=0) or time.time_ns()


def not_stored(what: str, error: Exception) -> NotStored:
    """The refusal that tells a client of a failure of disk or catalog."""
    return NotStored(f"the {what} could not be stored: {reason_of(error)}")


def reason_of(error: Exception) -> str:
    """Why something failed, in the system's words; no path is in them."""
    if isinstance(error, CollectorError | sqlite3.Error):
        return str(error)
    reason = error.strerror if isinstance(error, OSError) else getattr(error, "orig", None)
    return str(reason or type(error).__name__)
