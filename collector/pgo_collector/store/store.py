"""The store: blobs and catalog together. A profile answered with success is on disk and counts once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

from pgo_collector.blobs.blobs import Blobs
from pgo_collector.blobs.files import delete_part
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
from pgo_collector.model.series import BlobName
from pgo_collector.settings import Settings
from pgo_collector.store.claim import BucketClaim, Claim
from pgo_collector.store.folder import CATALOG, DataFolder, FolderClaim, folder_storage
from pgo_collector.traces.spans import at, place, span

P = ParamSpec("P")
T = TypeVar("T")


# How long a transaction may wait for the storage, in times that a request to it may take: one request after
# another, with further tries, for many blobs at once.
_IDLE_REQUESTS = 8
# How many requests to the object store each process runs at once. It holds one blob in memory for each.
_STORAGE_REQUESTS = 16


class Store:
    """A locked data folder, its catalog, and the blobs in a storage; a context manager.

    Everything that changes which blobs count runs on one thread, one step after another: see `write`. So does
    what changes the areas beside the blobs, on another: see `write_area`.
    """

    def __init__(
        self, folder: DataFolder, database: Database, storage: Storage, claim: Claim | None = None
    ) -> None:
        """Take an open database."""
        self.folder = folder
        self.claim = claim or FolderClaim(folder)
        self.blobs = Blobs(storage)
        self.catalog = Catalog(database)
        self.writer = ThreadPoolExecutor(1, "writer")
        self._area_writer = ThreadPoolExecutor(1, "area writer")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._area_writer.shutdown()
        self.writer.shutdown()
        self.catalog.database.close()

    async def write(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function on the thread that changes which blobs count; return what it returns.

        Raises what the function raises, and OSError if this process no longer holds the data folder or the
        claim of the bucket.
        """
        return await self._write(self.writer, function, *args, **kwargs)

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
                self.claim.check()
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
            await asyncio.to_thread(delete_part, part)

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
    return open_bucket(Bucket(place, settings.storage_seconds, _STORAGE_REQUESTS))


def claim_of(settings: Settings, folder: DataFolder, storage: Storage, database: Database) -> Claim:
    """Return the claim of the storage: of a bucket, or of the data folder."""
    own = FolderClaim(folder)
    return BucketClaim(storage, database, own) if settings.storage else own


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
                "the catalog is slow: its database has no free connection (PGOF_CATALOG_CONNECTIONS), or"
                " takes too long (PGOF_STORAGE_SECONDS, or PGOF_CATALOG_CONNECT_SECONDS and"
                " PGOF_CATALOG_STATEMENT_SECONDS)"
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
