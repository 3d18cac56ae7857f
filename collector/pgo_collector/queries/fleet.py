"""The fleet: find the stored profiles of a selection, in one service or in all, and query them on workers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pprof_merge import Budget, ValueType

from pgo_collector.catalog.catalog import Extent
from pgo_collector.catalog.rows import Blob
from pgo_collector.errors import (
    AnswerTooLarge,
    NothingSelected,
    NothingToMerge,
    ParameterInvalid,
    TaskOutOfMemory,
)
from pgo_collector.merges.inputs import chosen_of
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.selection import Coarse, Focus, Selection
from pgo_collector.queries.kept import KeptAnswers
from pgo_collector.store.store import Store
from pgo_collector.workers.blob_tasks import BlobTasks, until_none_is_gone


class Result(Protocol):
    """The result of a function of the engine for blobs, without those in `left_out`."""

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """Return the blobs that had to be left out."""


T = TypeVar("T", bound=Result)

# This many services are queried at once, over all requests: submits and merges need workers too.
_MAX_CONCURRENT = 4
# An answer has values of each service, so their number has a bound.
MAX_SERVICES = 1000


@dataclass(frozen=True, slots=True)
class Found:
    """The stored profiles of a selection at the moment of the query: the extent of each service.

    `coarse` names the combined blobs that contain more than the selection. All profiles were taken from
    `begin` to `last` (Unix, ns), apart from others in combined blobs.
    """

    selection: Selection
    services: dict[str, Extent]
    coarse: Coarse
    begin: int
    last: int

    def selection_of(self, service: str) -> Selection:
        """Return the selection of one service, limited to the times found.

        Profiles that have since been stored with an earlier or a later time are not in it.
        """
        return replace(self.selection, service=service, begin=self.begin).up_to(self.last)


class Fleet:
    """Runs queries on the stored profiles; what a worker computes for an answer stays within a budget.

    `kept` has answers for the pages, in at most `kept_bytes` of memory.
    """

    def __init__(self, store: Store, tasks: BlobTasks, budget: Budget, kept_bytes: int) -> None:
        self._store = store
        self.tasks = tasks
        self.budget = budget
        self.kept = KeptAnswers(store.catalog, tasks.symbols_of, kept_bytes)
        self._concurrent = asyncio.Semaphore(_MAX_CONCURRENT)

    async def find(self, selection: Selection) -> Found:
        """Return the stored profiles of a selection.

        Raises NothingToMerge if there are none, and ParameterInvalid if they are of too many services.
        """
        return await asyncio.to_thread(self._find, selection)

    async def run(
        self,
        found: Found,
        task: Callable[..., T],
        arguments: Callable[[Selection, Sequence[Blob]], tuple[Any, ...]],
    ) -> AsyncIterator[tuple[str, T]]:
        """Run a function of the engine for each service, in the worker that has the service's rows.

        Yield each service and its result as soon as it is there. The function gets ChosenBlobs, then what
        `arguments` returns for the service's selection and blobs, then the budget. Both are called again if
        blobs were deleted meanwhile. Raises AnswerTooLarge, BlobsGone or WorkerUnavailable.
        """
        selections = [found.selection_of(service) for service in found.services]
        async with aclosing(self.run_each(selections, task, arguments)) as results:
            async for selection, result in results:
                yield selection.service, result

    async def run_each(
        self,
        selections: Sequence[Selection],
        task: Callable[..., T],
        arguments: Callable[[Selection, Sequence[Blob]], tuple[Any, ...]],
        if_too_large: T | None = None,
    ) -> AsyncGenerator[tuple[Selection, T]]:
        """Run a function of the engine for selections, each of one service and type, as `run` does.

        Yield each selection and its result as soon as it is there. A selection may be empty. The result of
        one that takes too much memory is `if_too_large`, unless that is None.
        """

        async def run_task(selection: Selection) -> T:
            blobs = await asyncio.to_thread(self._store.catalog.live, selection)
            chosen = await asyncio.to_thread(chosen_of, self._store.blobs.storage, selection, blobs)
            further = await asyncio.to_thread(arguments, selection, blobs)
            return await self.tasks.run(task, chosen, *further, self.budget)

        async def run_one(selection: Selection) -> tuple[Selection, T]:
            async with self._concurrent:
                try:
                    return selection, await until_none_is_gone(lambda: run_task(selection))
                except (AnswerTooLarge, TaskOutOfMemory):
                    if if_too_large is None:
                        raise
                    return selection, if_too_large

        tasks = [asyncio.create_task(run_one(selection)) for selection in selections]
        try:
            for done in asyncio.as_completed(tasks):
                yield await done
        finally:
            for waiting in tasks:
                waiting.cancel()

    def part(self) -> AbstractAsyncContextManager[Path]:
        """Return a path for a file of stacks; leaving the context removes the file."""
        return self._store.part()

    def _find(self, selection: Selection) -> Found:
        catalog = self._store.catalog
        services = catalog.extents(selection)
        if not services:
            raise NothingSelected
        if len(services) > MAX_SERVICES:
            raise ParameterInvalid(
                f"service=*: the selection has {len(services):,} services, and at most {MAX_SERVICES:,} are"
                " allowed; ask for one service, or select less with labels, from, to or last"
            )
        first = min(extent.first for extent in services.values())
        last = max(extent.last for extent in services.values())
        begin = first if selection.begin is None else max(first, selection.begin)
        return Found(selection, services, catalog.state(selection).coarse, begin, last)


def nothing_readable(found: Found, why: Sequence[str]) -> NothingToMerge:
    """Return the error for a selection whose blobs all had to be left out; `why` has the reasons."""
    count = sum(each.blobs for each in found.services.values())
    reason = why[0] if why else "they have no sample type"
    return NothingToMerge(f"none of the {count} stored profiles can be taken: {reason}")


def most_common(types: Mapping[str, ValueType]) -> ValueType:
    """Return the sample type that most services measure; if several are as common, the first by name."""
    counts = Counter(types.values())
    return min(counts, key=lambda type_: (-counts[type_], type_))


def chosen_type(types: Mapping[str, ValueType], focus: Focus) -> ValueType:
    """Return the sample type that a question is about, of those of the services.

    It is the one with the name that is asked for, or else the one that most services measure.
    """
    named = {service: type_ for service, type_ in types.items() if name_of(type_) == focus.sample_type}
    return most_common(named or types)


def name_of(sample_type: ValueType) -> str:
    """Return the name of a sample type as text, with bytes that aren't UTF-8 escaped."""
    return sample_type.type.decode(errors="backslashreplace")


def others(types: Mapping[str, ValueType], chosen: ValueType) -> dict[str, str]:
    """Return the services that measure another sample type, sorted by name, and their types."""
    return {service: str(type_) for service, type_ in sorted(types.items()) if type_ != chosen}
