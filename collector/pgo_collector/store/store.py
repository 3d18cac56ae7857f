"""The store: blobs and catalog together, so that what is answered for is on disk and counted once."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.database import REINDEX, is_damage
from pgo_collector.errors import CatalogFails, CollectorError, NotStored
from pgo_collector.model.blob_names import BlobName
from pgo_collector.model.facts import Announce, unannounced
from pgo_collector.store.blobs import MISSING, Blobs
from pgo_collector.store.folder import DataFolder, remove_part
from pgo_collector.store.group_commit import GroupCommit, Submission, Submitted
from pgo_collector.workers.batcher import settle
from pgo_collector.workers.pool import Workers

P = ParamSpec("P")
T = TypeVar("T")


# So many submits share a transaction; the others don't wait for more than that.
_MOST_AT_ONCE = 64


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
        self.arrivals = GroupCommit(self.blobs, self.catalog, announce)
        self._waiting: deque[tuple[Submission, asyncio.Future[Submitted]]] = deque()
        self._writer = ThreadPoolExecutor(1, "writer")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.shutdown()
        self.catalog.close()

    async def write(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a blocking function on the thread that all changes are made on.

        Raises what it does, and OSError if the data folder isn't this process's any more.
        """

        def write() -> T:
            self.folder.check_held()
            return function(*args, **kwargs)

        writing = self._writer.submit(write)
        try:
            return await asyncio.wrap_future(writing)
        except asyncio.CancelledError:
            if not writing.cancelled():  # it has begun, and may need what the caller removes as it ends
                await asyncio.wait([asyncio.wrap_future(writing)])
            raise

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

    async def add(self, arrival: Submission) -> Submitted:
        """Stores a profile that was checked, durably, and counts it, unless it is counted already, together
        with those that come as it does. If this doesn't raise, the file `part` is gone.

        Raises NotStored.
        """
        future: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
        self._waiting.append((arrival, future))
        self._writer.submit(self._count_waiting, future.get_loop())
        try:
            return await future
        except (OSError, SQLAlchemyError) as error:
            raise not_stored("profile", error) from error

    def _count_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        """Counts those that wait, for which there may be none left of the calls that they made."""
        waiting = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST_AT_ONCE))]
        if not waiting:
            return
        arrivals, futures = zip(*waiting, strict=True)
        results: Sequence[Submitted | Exception]
        try:
            self.folder.check_held()
            results = self.arrivals.count(arrivals)
        except Exception as error:  # noqa: BLE001 - those who wait are told
            results = [error] * len(futures)
        loop.call_soon_threadsafe(settle, futures, results)

    def counted(self, names: Iterable[BlobName]) -> set[BlobName]:
        """Those of the profiles that are counted by a blob that is really there."""
        owners = self.catalog.owners(names)
        counting = self.catalog.with_ids(set(owners.values()))
        there = {blob.id for blob in counting if self.blobs.size(blob.name) != MISSING}
        return {name for name, blob in owners.items() if blob in there}


def not_stored(what: str, error: Exception) -> NotStored | CatalogFails:
    """The refusal that tells a client of a failure of disk or catalog."""
    if is_damage(error):
        return catalog_fails(error)
    return NotStored(f"the {what} could not be stored: {reason_of(error)}")


def catalog_fails(error: Exception) -> CatalogFails:
    """The refusal of a request for which the catalog couldn't be read or written."""
    fix = f"; it is damaged: {REINDEX}" if is_damage(error) else ""
    return CatalogFails(f"the catalog fails: {reason_of(error)}{fix}")


def reason_of(error: Exception) -> str:
    """Why something failed, in the system's words; no path is in them."""
    if isinstance(error, CollectorError | sqlite3.Error):
        return str(error)
    reason = error.strerror if isinstance(error, OSError) else getattr(error, "orig", None)
    return str(reason or type(error).__name__)
