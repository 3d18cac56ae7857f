"""Deleting blobs: those that a combine has replaced, that retention or a request deletes, or that were never
live.

First they are retired: their rows stay, but aren't live, and no other blob takes their names. Then the files
are deleted, and then the rows.

While a lease isn't settled, an earlier request to delete one of these files may still be on its way. Until it
has arrived, the rows stay, so that no new blob takes a name that the request deletes.
The files that a combine has replaced stay, too, since its own blob may have such a name. Files that no blob
counts are deleted even then: `reindex` would take them in again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import structlog
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.catalog.database import Owner
from pgo_collector.catalog.leases import Lease
from pgo_collector.catalog.rows import Blob
from pgo_collector.errors import StorageFails
from pgo_collector.model.series import BlobName
from pgo_collector.store.store import Store, reason_of
from pgo_collector.workers.blob_tasks import BlobTasks

# Blobs deleted in one call of `Store.write`, which takes some milliseconds.
_BATCH = 128
_log = structlog.get_logger()


async def delete_retired(store: Store, lease: Lease, service: str, type_: str) -> None:
    """Delete the retired blobs of a service and type, whose lock and lease the caller must hold.

    They are deleted in batches on the thread of `Store.write`, so that submits have their turn in between. A
    blob that can't be deleted is logged and left for the next upkeep.
    """
    retired = await asyncio.to_thread(store.catalog.retired, service, type_)
    delete = _delete if lease.is_settled else _delete_uncounted
    if retired and delete is _delete_uncounted:
        _log.info("deletion postponed", service=service, blobs=len(retired))
    try:
        for start in range(0, len(retired), _BATCH):
            await store.write(delete, store, lease, retired[start : start + _BATCH])
    except (OSError, SQLAlchemyError) as error:
        _log.warning("deletion interrupted", reason=str(error))


def _delete(store: Store, lease: Lease, retired: Sequence[Blob]) -> None:
    """Delete retired blobs, but none whose profile only a missing blob counts. Raises LeaseLost."""
    names = [blob.name for blob in retired]
    orphaned = {name for name, is_there in store.counted(names).items() if not is_there}
    for name in orphaned:
        _log.error("retired profile kept", blob=str(name))
    replaced = [blob for blob in retired if blob.name not in orphaned]
    lease.check_time()
    left = _discard(store, lease, replaced)
    store.catalog.drop_retired(lease, [blob for blob in replaced if blob.name not in left])


def _delete_uncounted(store: Store, lease: Lease, retired: Sequence[Blob]) -> None:
    """Delete the files of the retired blobs that no other blob counts. Raises LeaseLost."""
    counted = store.catalog.counting_ids(blob.name for blob in retired)
    lease.check_time()
    _discard(store, lease, [blob for blob in retired if blob.name not in counted])


async def collect_garbage(store: Store, tasks: BlobTasks, lease: Lease, service: str, type_: str) -> None:
    """Delete a service's and type's retired blobs, and its rows in the worker if most are of deleted blobs.

    Raises LeaseLost, WorkerUnavailable or SQLAlchemyError.
    """
    await delete_retired(store, lease, service, type_)
    await tasks.drop_rows(service, type_)


async def delete_live(
    store: Store, tasks: BlobTasks, lease: Lease, owner: Owner, blobs: Sequence[Blob]
) -> None:
    """Delete live blobs of a service and type, whose lock and lease the caller must hold.

    They don't count any more, whatever happens while their files are deleted. Raises LeaseLost, OSError,
    SQLAlchemyError or WorkerUnavailable.
    """
    for start in range(0, len(blobs), _BATCH):
        await store.write(store.catalog.retire, lease, blobs[start : start + _BATCH])
    await collect_garbage(store, tasks, lease, *owner)


def _discard(store: Store, lease: Lease, blobs: Sequence[Blob]) -> Collection[BlobName]:
    """Delete blobs, and the folders that are then empty; return the ones that couldn't be deleted."""
    failures = store.blobs.discard_all(blob.name for blob in blobs)
    if any(isinstance(error, StorageFails) for error in failures.values()):
        lease.unsettle()
    for name, error in failures.items():
        _log.warning("blob not deleted", blob=str(name), reason=reason_of(error))
    store.blobs.remove_folders(blob.name for blob in blobs if blob.name not in failures)
    return failures.keys()
