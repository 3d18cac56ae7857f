"""The store: blobs and catalog together. A profile answered with success is on disk and counts once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple, ParamSpec, Self, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.background import settle
from pgo_collector.blobs.blobs import Blobs
from pgo_collector.blobs.storage import MISSING, Storage
from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.database import Database
from pgo_collector.catalog.faults import REINDEX, Fault, fault_of
from pgo_collector.catalog.sqlite import SQLite
from pgo_collector.errors import (
    CatalogBusy,
    CatalogFails,
    CatalogGone,
    CatalogSlow,
    CatalogUnavailable,
    CollectorError,
    NameTooLong,
    NotStored,
    Refusal,
    StorageFails,
    StorageUnusable,
)
from pgo_collector.model.blob_names import BlobName
from pgo_collector.model.facts import Announce, unannounced
from pgo_collector.settings import Settings
from pgo_collector.store.claim import NO_CLAIM, BucketClaim, Claim
from pgo_collector.store.folder import CATALOG, DataFolder, folder_storage, remove_part
from pgo_collector.store.group_commit import GroupCommit, Submission, Submitted
from pgo_collector.traces.spans import Place, at, place, shared, span
from pgo_collector.workers.bulk import Bulk
from pgo_collector.workers.pool import Workers

P = ParamSpec("P")
T = TypeVar("T")


# Submits that share a transaction. A bound, so that the first of them don't wait for hundreds of others.
_MOST_AT_ONCE = 64
# How long a batch waits for the senders of the one before, as a part of the time that that one took.
_PATIENCE = 0.5
# How long a transaction may wait for the storage, in times that a request to it may take: one request after
# another, with further tries, for many blobs at once.
_IDLE_REQUESTS = 8


class _Waiting(NamedTuple):
    """A profile that waits to be stored since a time of the monotonic clock, in ns; see `Store.add`."""

    submission: Submission
    future: asyncio.Future[Submitted]
    place: Place | None
    since: int


class _Queue:
    """Profiles that wait to be stored, and how many more are expected. The event loop fills it, the writer
    empties it.

    Senders that send one profile after another would fall into two groups: while the profiles of one are
    stored, the other's wait, and then those are stored before the first group's next ones have come. So after
    each batch, the next one waits a little until there are as many profiles as there were.
    """

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        self._expected = 0
        # The profiles that there were at the end of the last batch: its own, and those that came meanwhile.
        # The next batch waits for as many until then, a time of the monotonic clock in s.
        self._usual, self._until = 0, 0.0
        # Held for each look at these attributes; notified when there may be enough.
        self._changed = threading.Condition()

    @contextmanager
    def expecting(self) -> Iterator[None]:
        """Expect one more profile during the block."""
        self._expect(1)
        try:
            yield
        finally:
            self._expect(-1)

    def put(self, waiting: _Waiting) -> None:
        """Add a profile."""
        with self._changed:
            self._waiting.append(waiting)
            self._notify()

    @contextmanager
    def batch(self, seconds: float) -> Iterator[list[_Waiting]]:
        """Yield the first profiles, to be stored during the block, once all that are expected are here, or
        after this time. There may be none.
        """
        if not self._waiting:
            yield []
            return
        with self._changed:
            self._changed.wait_for(self._has_usual, min(seconds, self._until - time.monotonic()))
            self._changed.wait_for(self._is_complete, seconds)
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST_AT_ONCE))]
        began = time.monotonic()
        yield batch
        with self._changed:
            ended = time.monotonic()
            self._usual = len(batch) + len(self._waiting) + self._expected
            self._until = ended + _PATIENCE * (ended - began)

    def _expect(self, more: int) -> None:
        with self._changed:
            self._expected += more
            self._notify()

    def _notify(self) -> None:
        """Wake the writer if what it may wait for is there."""
        if self._is_complete() or self._has_usual():
            self._changed.notify()

    def _is_complete(self) -> bool:
        """Return whether no profile is expected any more, or there are enough for a full batch."""
        return not self._expected or len(self._waiting) >= _MOST_AT_ONCE

    def _has_usual(self) -> bool:
        """Return whether as many profiles are here or expected as at the end of the last batch."""
        return len(self._waiting) + self._expected >= min(self._usual, _MOST_AT_ONCE)


class Store:
    """A locked data folder, its catalog, the blobs in a storage, and the workers that read them; a context
    manager.

    Everything that changes which blobs count runs on one thread, one step after another: see `write`. So does
    what changes the areas beside the blobs, on another: see `write_area`.
    """

    def __init__(
        self,
        folder: DataFolder,
        database: Database,
        storage: Storage,
        workers: Workers,
        bulk: Bulk,
        *,
        claim: Claim = NO_CLAIM,
        announce: Announce = unannounced,
    ) -> None:
        """Take an open database; `announce` makes the events of stored profiles."""
        self.folder = folder
        self.workers = workers
        self.bulk = bulk
        self.claim = claim
        self.announce = announce
        self.blobs = Blobs(storage)
        self.catalog = Catalog(database)
        self.group_commit = GroupCommit(self.blobs, self.catalog, announce)
        self._queue = _Queue()
        self._writer = ThreadPoolExecutor(1, "writer")
        self._area_writer = ThreadPoolExecutor(1, "area writer")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._area_writer.shutdown()
        self._writer.shutdown()
        self.catalog.database.close()

    async def write(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function on the thread that changes which blobs count; return what it returns.

        Raises what the function raises, and OSError if this process no longer holds the data folder or the
        claim of the bucket.
        """
        return await self._write(self._writer, function, *args, **kwargs)

    async def write_area(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do the same on the thread that changes releases, programs and start lines.

        They may be large, and no submit waits for them.
        """
        return await self._write(self._area_writer, function, *args, **kwargs)

    async def _write(
        self, writer: ThreadPoolExecutor, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        there, asked = place(), time.monotonic_ns()

        def write() -> T:
            if there is not None:
                there.add("store", "queue", asked)
            with at(there), span("store", function.__name__.strip("_")):
                self._check_held()
                return function(*args, **kwargs)

        writing = writer.submit(write)
        try:
            return await asyncio.wrap_future(writing)
        except asyncio.CancelledError:
            if not writing.cancelled():  # it has begun, and may use files that the caller removes as it ends
                await asyncio.wait([asyncio.wrap_future(writing)])
            raise

    @asynccontextmanager
    async def part(self) -> AsyncIterator[Path]:
        """Yield an unused path in incoming/; a file there is deleted at the end of the block."""
        part = self.folder.new_part()
        try:
            yield part
        finally:
            await asyncio.to_thread(remove_part, part)

    @asynccontextmanager
    async def submission_part(self, part: Path | None = None) -> AsyncIterator[Path]:
        """Yield an unused path for a profile that `add` stores, or the file `part` that is there already.

        The file is deleted if the block raises.
        """
        part = part or self.folder.new_part()
        try:
            yield part
        except BaseException:
            await asyncio.to_thread(remove_part, part)
            raise

    def expecting(self) -> AbstractContextManager[None]:
        """Expect a profile to be added right after the block: a transaction waits a little for it."""
        return self._queue.expecting()

    async def add(self, submission: Submission) -> Submitted:
        """Store a validated profile durably and count it, unless it is counted already.

        Profiles that are added at the same time share syncs and a transaction. When this returns, the file
        `part` is gone. Raises NotStored, CatalogFails, StorageFails or NameTooLong.
        """
        future: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
        self._queue.put(_Waiting(submission, future, place(), time.monotonic_ns()))
        self._writer.submit(self._commit_waiting, future.get_loop())
        try:
            return await future
        except (OSError, SQLAlchemyError) as error:
            raise not_stored("profile", error) from error

    def _commit_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        """Store the profiles that wait, if an earlier call for one of them hasn't stored them all."""
        with self._queue.batch(self.catalog.database.gather_seconds) as batch:
            if batch:
                self._commit(loop, batch)

    def _commit(self, loop: asyncio.AbstractEventLoop, waiting: Sequence[_Waiting]) -> None:
        submissions, futures, places, since = zip(*waiting, strict=True)
        results: Sequence[Submitted | Exception]
        for there, asked in zip(places, since, strict=True):
            if there is not None:
                there.add("store", "queue", asked)
        try:
            with shared([*filter(None, places)]), span("store", "commit", profiles=len(waiting)):
                self._check_held()
                results = self.group_commit.commit(submissions)
        except Exception as error:  # noqa: BLE001 - the callers that wait get it
            results = [error] * len(futures)
        loop.call_soon_threadsafe(settle, futures, results)

    def _check_held(self) -> None:
        self.folder.check_held()
        self.claim.check()

    def counted(self, names: Iterable[BlobName]) -> dict[BlobName, bool]:
        """Return the profiles that are counted, and whether the blob that counts each is there."""
        ids = self.catalog.counting_ids(names)
        counting = self.catalog.with_ids(set(ids.values()))
        there = {blob.id for blob in counting if self.blobs.size(blob.name) != MISSING}
        return {name: id_ in there for name, id_ in ids.items()}


def storage_of(settings: Settings) -> Storage:
    """Return the storage of blobs: a folder in the data folder, or a bucket. Raises StorageUnusable."""
    if not settings.storage:
        return folder_storage(settings.directory.absolute())
    return storage_at(settings.storage, settings)


def storage_at(place: str, settings: Settings) -> Storage:
    """Return the storage at a URL of a bucket. Raises StorageUnusable."""
    try:
        from pgo_collector.blobs.bucket import Bucket, open_bucket  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise StorageUnusable(
            f"PGOF_STORAGE needs a package that isn't installed, {error.name}: pip install pgo-collector[s3]"
        ) from error
    return open_bucket(Bucket(place, settings.storage_seconds, settings.storage_requests))


def claim_of(settings: Settings, storage: Storage, database: Database) -> Claim:
    """Return the claim of the storage: of a bucket, or of the data folder."""
    return BucketClaim(storage, database) if settings.storage else NO_CLAIM


def database_of(settings: Settings) -> Database:
    """Return the catalog's database: PostgreSQL if PGOF_CATALOG names one, else a file in the data folder.

    Raises CatalogUnavailable.
    """
    if not settings.catalog:
        return SQLite(settings.directory / CATALOG, has_bucket=bool(settings.storage))
    try:
        from pgo_collector.catalog.postgresql import PostgreSQL  # noqa: PLC0415 - an extra's package
    except ImportError as error:
        fix = "install pgo-collector[postgresql], or unset it"
        raise CatalogUnavailable(f"PGOF_CATALOG needs a package that is missing ({error}): {fix}") from None
    return PostgreSQL(
        settings.catalog,
        settings.catalog_connections,
        settings.catalog_connect_seconds,
        settings.catalog_statement_seconds,
        shared_seconds=_IDLE_REQUESTS * settings.storage_seconds if settings.is_shared else None,
    )


def not_stored(what: str, error: Exception) -> Refusal:
    """Return the refusal of a request; `what`, such as a profile, could not be stored on disk or catalog."""
    if isinstance(error, StorageFails | NameTooLong):
        return type(error)(f"the {what} could not be stored: {error}")
    if fault_of(error) is not Fault.OTHER:
        return catalog_fails(error)
    return NotStored(f"the {what} could not be stored: {reason_of(error)}")


def catalog_fails(error: Exception) -> CatalogFails:
    """Return the refusal of a request for which the catalog couldn't be read or written."""
    refusal = CatalogFails(f"the catalog fails: {reason_of(error)}")
    match fault_of(error):
        case Fault.GONE:
            refusal = CatalogGone("the catalog is gone: its database can't be reached")
        case Fault.EMPTY:
            refusal = CatalogGone(
                "the catalog is gone: its database has no tables; stop all collectors and start one, which"
                " makes it again from the blobs"
            )
        case Fault.SLOW:
            refusal = CatalogSlow(
                "the catalog is slow: its database has no free connection (PGOF_CATALOG_CONNECTIONS,"
                " PGOF_CATALOG_CONNECT_SECONDS), or takes too long (PGOF_CATALOG_STATEMENT_SECONDS)"
            )
        case Fault.IN_USE:
            refusal = CatalogFails("the catalog fails: another pgo-collector writes it")
        case Fault.CONFLICT:
            refusal = CatalogBusy("another collector is changing the same profiles: try again")
        case Fault.DAMAGED:
            refusal = CatalogFails(f"{refusal}; it is damaged: {REINDEX}")
    return refusal


def reason_of(error: Exception) -> str:
    """Return why something failed, in the system's words and without a path."""
    if isinstance(error, CollectorError):
        return str(error)
    reason = error.strerror if isinstance(error, OSError) else getattr(error, "orig", None)
    return str(reason or type(error).__name__)
