"""The fleet: the stored profiles of one service or of all, and the workers that are asked about them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pprof_merge import Budget, ValueType

from pgo_collector.catalog.catalog import Extent
from pgo_collector.catalog.rows import Blob
from pgo_collector.errors import NothingSelected, NothingToMerge, ParameterInvalid
from pgo_collector.merges.inputs import chosen_of
from pgo_collector.model.selection import Coarse, Selection
from pgo_collector.store.store import Store

T = TypeVar("T")

# So many services are asked about at once, over all requests: submits and merges need workers too.
_AT_ONCE = 4
# An answer has values of each of them.
MOST_SERVICES = 1000


@dataclass(frozen=True, slots=True)
class Found:
    """What there was of a selection when it was looked for, by service, and where it is finer than that.

    All of it was taken from `begin` to `last`, but for what combined blobs have besides.
    """

    selection: Selection
    services: dict[str, Extent]
    coarse: Coarse
    begin: int
    last: int

    def of(self, service: str) -> Selection:
        """What there was of one service, without what has come before or after since."""
        return replace(self.selection, service=service, begin=self.begin).up_to(self.last)


class Fleet:
    """Asks about what is stored; what a worker makes for an answer is within a budget."""

    def __init__(self, store: Store, budget: Budget) -> None:
        self._store = store
        self.budget = budget
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    async def find(self, selection: Selection) -> Found:
        """What a question is about. Raises NothingToMerge, and ParameterInvalid if that is too much."""
        return await asyncio.to_thread(self._find, selection)

    async def ask(
        self,
        found: Found,
        task: Callable[..., T],
        arguments: Callable[[Sequence[Blob]], tuple[Any, ...]],
    ) -> AsyncIterator[tuple[str, T]]:
        """Calls a function of the engine for each service, in the worker that has its rows: what it says, in
        the order in which it comes. `arguments` are those for some blobs, between Chosen and the budget.

        Raises AnswerTooLarge or WorkerUnavailable.
        """

        async def one(service: str) -> tuple[str, T]:
            async with self._at_once:
                blobs = await asyncio.to_thread(self._store.catalog.live, found.of(service))
                chosen = await asyncio.to_thread(chosen_of, self._store, service, found.selection.type, blobs)
                further = await asyncio.to_thread(arguments, blobs)
                arguments_of_task = chosen, *further, self.budget
                return service, await self._store.workers.run_for(chosen.owner, task, *arguments_of_task)

        tasks = [asyncio.create_task(one(service)) for service in found.services]
        try:
            for done in asyncio.as_completed(tasks):
                yield await done
        finally:
            for waiting in tasks:
                waiting.cancel()

    def part(self) -> AbstractAsyncContextManager[Path]:
        """Return a name for a file of stacks, which is removed at the end."""
        return self._store.part()

    def _find(self, selection: Selection) -> Found:
        catalog = self._store.catalog
        services = catalog.extents(selection)
        if not services:
            raise NothingSelected
        if len(services) > MOST_SERVICES:
            raise ParameterInvalid(
                f"service=*: there are such profiles of {len(services):,} services, and {MOST_SERVICES:,} are"
                " the most; ask for one service, or take less with labels, from, to or last"
            )
        first = min(extent.first for extent in services.values())
        last = max(extent.last for extent in services.values())
        begin = first if selection.begin is None else max(first, selection.begin)
        return Found(selection, services, catalog.state(selection).coarse, begin, last)


def nothing_readable(found: Found, why: Sequence[str]) -> NothingToMerge:
    """The refusal where there are blobs, and nothing can be taken from them."""
    count = sum(each.blobs for each in found.services.values())
    reason = why[0] if why else "they measure nothing"
    return NothingToMerge(f"none of the {count} stored profiles can be taken: {reason}")


def most_common(types: Mapping[str, ValueType]) -> ValueType:
    """The type that most services measure; of those that as many do, the first by name."""
    counts = Counter(types.values())
    return min(counts, key=lambda type_: (-counts[type_], type_))


def others(types: Mapping[str, ValueType], chosen: ValueType) -> dict[str, str]:
    """The services that measure something else, by name, and what that is."""
    return {service: str(type_) for service, type_ in sorted(types.items()) if type_ != chosen}
