"""Retired blobs: those that a combine replaced. They count no more and are deleted, file before row."""

from __future__ import annotations

import asyncio

import structlog
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.store.blob_rows import Blob
from pgo_collector.store.store import Store

_log = structlog.get_logger()


async def delete_retired(store: Store) -> None:
    """Deletes all of them that can be; what fails is logged and waits for the next start."""
    try:
        await store.write(store.catalog.forget, await asyncio.to_thread(_delete_files, store))
    except SQLAlchemyError as error:
        _log.warning("not forgotten, left for the next start", reason=str(error))


def _delete_files(store: Store) -> list[Blob]:
    retired = store.catalog.retired()
    counted = store.counted(blob.name for blob in retired)
    deleted = []
    for blob in retired:
        if blob.name not in counted:
            _log.error("kept, since the blob that replaced it is missing", blob=str(blob.name))
            continue
        try:
            store.blobs.discard(blob.name)
        except OSError as error:
            _log.warning("not deleted, left for the next start", blob=str(blob.name), reason=error.strerror)
        else:
            deleted.append(blob)
    return deleted
