"""Tasks over stored blobs: each runs in the worker that keeps the rows of its blobs.

Another collector may delete blobs while they are read: it has combined them, or they are too old. A task that
had to leave out such a blob raises BlobsGone here, and its caller begins again with `until_none_is_gone`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from pgo_collector.catalog.catalog import Catalog
from pgo_collector.engine.merge_inputs import ChosenBlobs
from pgo_collector.engine.recent_profiles import rows_owner
from pgo_collector.engine.symbols import Symbols
from pgo_collector.engine.tasks import drop_rows
from pgo_collector.errors import BlobsGone
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import BlobName
from pgo_collector.workers.bulk import Bulk
from pgo_collector.workers.pool import Workers

# How often a task is tried when some of its blobs were deleted while they were read.
_ATTEMPTS = 3

P = ParamSpec("P")
T = TypeVar("T")


class _LeavesOut(Protocol):
    @property
    def left_out(self) -> Sequence[LeftOut]: ...


L = TypeVar("L", bound=_LeavesOut)


class BlobTasks:
    """Runs tasks over the blobs of a catalog. Very many unread blobs are read in bulk first.

    `symbols_of` returns what names the functions of a service, or of several. It blocks.
    """

    def __init__(
        self, workers: Workers, bulk: Bulk, catalog: Catalog, symbols_of: Callable[[str], Symbols]
    ) -> None:
        self.workers = workers
        self.symbols_of = symbols_of
        self._bulk = bulk
        self._catalog = catalog

    async def run(
        self,
        task: Callable[Concatenate[ChosenBlobs, P], L],
        chosen: ChosenBlobs,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> L:
        """Return what a task makes of blobs. Raises BlobsGone, and what `Workers.run_for` raises."""
        if chosen.is_whole:
            await self._bulk.load(chosen)
        named = replace(chosen, symbols=await asyncio.to_thread(self.symbols_of, chosen.service))
        result = await self.workers.run_for(chosen.owner, task, named, *args, **kwargs)
        await check_none_is_gone(self._catalog, result.left_out)
        return result

    async def read(self, task: Callable[[ChosenBlobs], T], chosen: ChosenBlobs) -> T:
        """Return what a task says about the rows of blobs. Raises what `Workers.run_for` raises."""
        await self._bulk.load(chosen)
        return await self.workers.run_for(chosen.owner, task, chosen)

    async def drop_rows(self, service: str, type_: str) -> None:
        """Delete a service's and type's rows if most are of deleted blobs.

        Raises SQLAlchemyError, and what `Workers.run_for` raises.
        """
        live = await asyncio.to_thread(self._catalog.count, Selection(service, type_))
        owner = rows_owner(service, type_)
        await self.workers.run_for(owner, drop_rows, owner, live)


async def check_none_is_gone(catalog: Catalog, left_out: Sequence[LeftOut]) -> None:
    """Raise BlobsGone if a blob had to be left out since it was deleted while it was read.

    The catalog tells: the row of a deleted blob is gone, or not live, before its bytes are. A blob whose row
    is live is damaged, or was lost.
    """
    names = [BlobName.parse(left.blob) for left in left_out if left.is_damaged]
    damaged = {name for name in names if name is not None}
    if damaged and (gone := damaged - await asyncio.to_thread(catalog.live_among, damaged)):
        raise BlobsGone(
            f"{len(gone):,} of the stored profiles were combined or deleted while they were read, again and"
            f" again; one of them was {min(map(str, gone))}"
        )


async def until_none_is_gone(attempt: Callable[[], Awaitable[T]]) -> T:
    """Return what `attempt` returns, which is called again if it raises BlobsGone, a few times at most."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(BlobsGone):
            return await attempt()
    return await attempt()
