"""After blobs were retired: their files go, and so do rows of which most are no more."""

from __future__ import annotations

import asyncio

from pgo_collector.engine.collected import owner_of
from pgo_collector.engine.tasks import drop_rows
from pgo_collector.store.retired import delete_retired
from pgo_collector.store.selection import Selection
from pgo_collector.store.store import Store


async def tidy(store: Store, service: str, type_: str) -> None:
    """Does so for a service and type. Raises WorkerUnavailable or SQLAlchemyError."""
    await delete_retired(store, service, type_)
    live = await asyncio.to_thread(store.catalog.count, Selection(service, type_))
    owner = owner_of(service, type_)
    await store.workers.run_for(owner, drop_rows, owner, live)
