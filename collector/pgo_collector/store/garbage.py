"""Deleting blobs: retired ones, which a combine has replaced, file before row; live ones, row before file."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import structlog
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.catalog.rows import Blob
from pgo_collector.engine.merge_inputs import rows_owner
from pgo_collector.engine.tasks import drop_rows
from pgo_collector.model.blob_names import BlobName
from pgo_collector.model.selection import Selection
from pgo_collector.store.store import Store, reason_of

# Blobs deleted in one call of `Store.write`, which takes some milliseconds.
_BATCH = 128
_log = structlog.get_logger()


async def delete_retired(store: Store, service: str | None = None, type_: str | None = None) -> None:
    """Delete all retired blobs, or those of one service and type, whose lock the caller must hold.

    They are deleted in batches on the thread of `Store.write`, so that submits have their turn in between. A
    blob that can't be deleted is logged and left for the next start.
    """
    retired = await asyncio.to_thread(store.catalog.retired, service, type_)
    try:
        for start in range(0, len(retired), _BATCH):
            await store.write(_delete, store, retired[start : start + _BATCH])
    except (OSError, SQLAlchemyError) as error:
        _log.warning("not forgotten, left for the next start", reason=str(error))


def _delete(store: Store, retired: Sequence[Blob]) -> None:
    counted = store.counted(blob.name for blob in retired)
    for blob in retired:
        if blob.name not in counted:
            _log.error("kept, since the blob that replaced it is missing", blob=str(blob.name))
    replaced = [blob for blob in retired if blob.name in counted]
    left = _discard(store, replaced)
    store.catalog.drop_retired([blob for blob in replaced if blob.name not in left])


async def collect_garbage(store: Store, service: str, type_: str) -> None:
    """Delete a service's and type's retired blobs, and its rows in the worker if most are of deleted blobs.

    Raises WorkerUnavailable or SQLAlchemyError.
    """
    await delete_retired(store, service, type_)
    live = await asyncio.to_thread(store.catalog.count, Selection(service, type_))
    owner = rows_owner(service, type_)
    await store.workers.run_for(owner, drop_rows, owner, live)


async def delete_live(store: Store, service: str, type_: str, blobs: Sequence[Blob]) -> None:
    """Delete live blobs of a service and type, whose lock the caller must hold, and collect its garbage.

    Raises OSError, SQLAlchemyError or WorkerUnavailable.
    """
    for start in range(0, len(blobs), _BATCH):
        await store.write(_delete_live, store, blobs[start : start + _BATCH])
    await collect_garbage(store, service, type_)


def _delete_live(store: Store, blobs: Sequence[Blob]) -> None:
    """Delete live blobs, the row before the file.

    If the process is killed in between, the next start counts the profile again: retention deletes it then,
    and a request gets no answer. In the other order, a row would be left without its file.
    """
    store.catalog.drop(blobs)
    _discard(store, blobs)


def _discard(store: Store, blobs: Sequence[Blob]) -> Collection[BlobName]:
    """Delete blobs, and the folders that are then empty; return the ones that couldn't be deleted."""
    failures = store.blobs.discard_all(blob.name for blob in blobs)
    for name, error in failures.items():
        _log.warning("not deleted, left for the next start", blob=str(name), reason=reason_of(error))
    store.blobs.remove_folders(blob.name for blob in blobs if blob.name not in failures)
    return failures.keys()
