"""Sealing the combined blobs that an earlier version made without a seal, in the background of a start.

A seal is at the end of the blob's own file: see `blobs.blobs`. So the last bytes of each combined blob are
read, and a blob without a seal is written again, with the text of its .inputs as its seal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.catalog.rows import Blob
from pgo_collector.errors import InputsDamaged, LeaseHeld
from pgo_collector.store.locks import TAKEOVER_SECONDS, Locks
from pgo_collector.store.store import Store

# Blobs that are sealed in one call of `Store.write`; then submits have their turn.
_BATCH = 16
_log = structlog.get_logger()


class Sealing:
    """The background task that seals all combined blobs once."""

    def __init__(self, store: Store, locks: Locks) -> None:
        self._store = store
        self._locks = locks

    async def run(self) -> None:
        """Seal the combined blobs without a seal; a failure is logged, and the next start tries again."""
        try:
            async with self._locks.lease("sealing", TAKEOVER_SECONDS):
                unsealed = await asyncio.to_thread(_unsealed, self._store)
                for start in range(0, len(unsealed), _BATCH):
                    await self._store.write(_seal, self._store, unsealed[start : start + _BATCH])
        except LeaseHeld:
            return
        except (OSError, SQLAlchemyError) as error:
            _log.warning("sealing failed", reason=str(error))
            return
        if unsealed:
            _log.info("combined profiles sealed", count=len(unsealed))


def _unsealed(store: Store) -> list[Blob]:
    """Return the combined blobs without a seal. A missing one isn't among them: reconcile has logged it."""
    combined = store.catalog.combined()
    sealed = store.blobs.are_sealed({blob.name: blob.size for blob in combined})
    return [blob for blob, is_sealed in zip(combined, sealed, strict=True) if is_sealed is False]


def _seal(store: Store, blobs: Sequence[Blob]) -> None:
    """Seal the blobs that still count. Raises OSError."""
    for blob in store.catalog.with_ids(blob.id for blob in blobs):
        (is_sealed,) = store.blobs.are_sealed({blob.name: blob.size})
        if not blob.live or is_sealed is not False:
            continue
        try:
            store.blobs.seal(blob.name)
        except (InputsDamaged, FileNotFoundError) as error:
            _log.error("combined profile not sealed", blob=str(blob.name), reason=str(error))
            continue
        store.catalog.set_size(blob.id, store.blobs.size(blob.name))
