"""The fleet: the stored profiles of one service or of all, and the workers that are asked about them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pgo_collector.errors import NothingToMerge
from pgo_collector.merges.live import chosen_of, live_blobs
from pgo_collector.store.blob_rows import Blob
from pgo_collector.store.selection import Coarse, Selection
from pgo_collector.store.store import Store

T = TypeVar("T")

# So many services are asked about at once, over all requests: submits and merges need workers too.
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Found:
    """The live blobs of a selection, by service, each in canonical order, and where it is finer than them."""

    selection: Selection
    blobs: dict[str, list[Blob]]
    coarse: Coarse


class Fleet:
    """Asks about what is stored."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    async def find(self, selection: Selection) -> Found:
        """The blobs that a question is about. Raises NothingToMerge."""
        return await asyncio.to_thread(self._find, selection)

    async def ask(
        self,
        found: Found,
        task: Callable[..., T],
        arguments: Callable[[Sequence[Blob]], tuple[Any, ...]],
    ) -> AsyncIterator[tuple[str, T]]:
        """Calls a function of the engine for each service, in the worker that has its rows: what it says, in
        the order in which it comes. `arguments` are those for some blobs, after Chosen. Raises WorkerLost.
        """

        async def one(service: str, blobs: list[Blob]) -> tuple[str, T]:
            async with self._at_once:
                chosen = await asyncio.to_thread(chosen_of, self._store, service, found.selection.type, blobs)
                further = await asyncio.to_thread(arguments, blobs)
                return service, await self._store.workers.run_for(chosen.owner, task, chosen, *further)

        tasks = [asyncio.create_task(one(*of_service)) for of_service in found.blobs.items()]
        try:
            for done in asyncio.as_completed(tasks):
                yield await done
        finally:
            for waiting in tasks:
                waiting.cancel()

    def _find(self, selection: Selection) -> Found:
        blobs: dict[str, list[Blob]] = {}
        for blob in live_blobs(self._store, selection):
            blobs.setdefault(blob.name.series.service, []).append(blob)
        return Found(selection, blobs, self._store.catalog.coarse(selection))


def nothing_readable(found: Found, why: Sequence[str]) -> NothingToMerge:
    """The refusal where there are blobs, and nothing can be taken from them."""
    count = sum(map(len, found.blobs.values()))
    reason = why[0] if why else "they measure nothing"
    return NothingToMerge(f"none of the {count} stored profiles can be taken: {reason}")
