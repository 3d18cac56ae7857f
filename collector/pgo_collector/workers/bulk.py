"""The seam of bulk work, and the side of it that needs no cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from pgo_collector.blobs.storage import Storage
from pgo_collector.engine.merge_inputs import ChosenBlobs
from pgo_collector.engine.tasks import Unreadable, inspect_all
from pgo_collector.errors import DaskUnavailable
from pgo_collector.model.facts import Facts
from pgo_collector.settings import Settings
from pgo_collector.workers.pool import Workers


class BulkProgress:
    """Blobs that a cluster is reading: `read` of a `total`; both are 0 while it reads none."""

    def __init__(self) -> None:
        self.read = self.total = 0

    @contextmanager
    def of(self, count: int) -> Iterator[Callable[[int], int]]:
        """Count blobs while they are being read.

        Yield a function that counts more of them as read, and returns how many are by now.
        """
        read = 0

        def advance(more: int) -> int:
            nonlocal read
            read += more
            self.read += more
            return read

        self.total += count
        try:
            yield advance
        finally:
            self.total -= count
            self.read -= read


class Bulk(Protocol):
    """Reads very many blobs."""

    progress: BulkProgress

    async def load(self, chosen: ChosenBlobs) -> None:
        """Have the blobs read for the worker that keeps their rows, if very many of them are unread.

        The worker's own task reads the blobs that are still unread afterwards. Raises WorkerUnavailable.
        """

    async def inspect(
        self, storage: Storage, blobs: Sequence[tuple[str, str]], among: int
    ) -> list[Facts | Unreadable]:
        """Return the facts of `blobs`, a part of a job of `among` blobs.

        Raises WorkerUnavailable, TaskOutOfMemory and StorageFails.
        """


class OwnWorkers:
    """The null object of a server without a cluster: a task reads what it needs in its own worker."""

    def __init__(self, workers: Workers) -> None:
        self.progress = BulkProgress()
        self._workers = workers

    async def load(self, chosen: ChosenBlobs) -> None:
        """Do nothing."""

    async def inspect(
        self,
        storage: Storage,
        blobs: Sequence[tuple[str, str]],
        among: int,  # noqa: ARG002 - see Bulk
    ) -> list[Facts | Unreadable]:
        """Inspect the blobs in the least busy worker."""
        return await self._workers.run(inspect_all, storage, blobs)


def require_dask() -> None:
    """Raise DaskUnavailable if Dask isn't installed."""
    if find_spec("distributed") is None:
        raise DaskUnavailable("Dask isn't installed: pip install pgo-collector[dask]")


@asynccontextmanager
async def open_bulk(
    settings: Settings, workers: Workers, new_part: Callable[[], Path]
) -> AsyncIterator[Bulk]:
    """Yield the side of the seam that `PGOF_BULK` names; `new_part` returns an unused path of a file.

    Raises DaskUnavailable.
    """
    own = OwnWorkers(workers)
    if settings.dask_address is None:
        yield own
        return
    require_dask()
    from pgo_collector.workers.dask_cluster import DaskCluster  # noqa: PLC0415 - it takes half a second

    async with DaskCluster(settings, workers, own, new_part) as cluster:
        yield cluster
