"""Bulk work on a Dask cluster: contiguous ranges of the blobs, each read by one of the cluster's workers.

A range goes out as names and comes back as rows, which the worker of the service adds to its own. So the
merge is the same, byte for byte, wherever the blobs were read. A worker that dies costs its range, which Dask
gives to another. If the scheduler is gone, or a range fails, the own workers read what is left.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self
from weakref import WeakValueDictionary

import numpy as np
import structlog
from distributed import Client

from pgo_collector.blobs.files import delete_part
from pgo_collector.blobs.storage import Storage
from pgo_collector.engine.blob_columns import BlobColumns
from pgo_collector.engine.merge_inputs import ENGINE, ChosenBlobs
from pgo_collector.engine.tasks import Unreadable, absorb_rows, missing_rows
from pgo_collector.errors import CollectorError
from pgo_collector.model.facts import Facts
from pgo_collector.settings import Settings
from pgo_collector.workers.bulk import BulkProgress, OwnWorkers
from pgo_collector.workers.bulk_answers import (
    Answer,
    AnswerMalformed,
    facts_of,
    read_answer,
    refuse_pickles,
    unreadable_of,
)
from pgo_collector.workers.bulk_parts import inspect_part, read_part
from pgo_collector.workers.pool import Workers

# Blobs in a range. More blobs share more names and stacks, which then travel once; but a range is what is
# lost with a worker, and waits in its memory. The last ranges are small, so that all workers end together.
_MOST_BLOBS, _LEAST_BLOBS = 2500, 500
# The cluster reads the profiles of a service if at least this many are unread.
_LEAST_UNREAD = 5000
# Ranges of each thread of the cluster at a time, so that none waits for the next one.
_RANGES_AHEAD = 2
# How often a range that raised an error is tried again. Dask itself tries again when a worker dies.
_RETRIES = 2
_CONNECT_SECONDS = 5.0
# How long the cluster isn't asked again after it failed.
_PAUSE_SECONDS = 60.0
# Characters of an error in the log, and unreadable blobs of a range that are logged.
_LONGEST_REASON = 300
_MOST_REASONS = 3
_log = structlog.get_logger()


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    """Return whether a record is about anything but a task that was cancelled."""
    return not (record.exc_info and record.exc_info[0] is asyncio.CancelledError)


refuse_pickles()
# What fails on a cluster is an event here. Dask logs lost connections with tracebacks, though at level info,
# and a client that is closed while it connects again as an error.
logging.getLogger("distributed").setLevel(logging.WARNING)
logging.getLogger("distributed.client").addFilter(_is_no_cancellation)


class ClusterFails(CollectorError):
    """The scheduler can't be reached, or a range failed."""


class DaskCluster:
    """A `Bulk` on the cluster at `settings.dask_address`; a context manager.

    It connects when there is work, and again some time after a failure.
    """

    def __init__(
        self, settings: Settings, workers: Workers, own: OwnWorkers, new_part: Callable[[], Path]
    ) -> None:
        self.progress = BulkProgress()
        self._address = settings.dask_address
        self._seconds = settings.task_seconds
        self._workers = workers
        self._own = own
        self._new_part = new_part
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._failed_at = float("-inf")
        self._loading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._disconnect()

    async def load(self, chosen: ChosenBlobs) -> None:
        """Have the cluster read the blobs, if at least `_LEAST_UNREAD` are unread."""
        if len(chosen.blobs) < _LEAST_UNREAD or not self._may_be_asked:
            return
        async with self._loading.setdefault(chosen.owner, asyncio.Lock()):
            rows = await self._workers.run_for(chosen.owner, missing_rows, chosen)
            if len(rows) >= _LEAST_UNREAD and self._may_be_asked:
                with self.progress.of(len(rows)) as advance:
                    try:
                        await self._load(chosen.owner, chosen.blobs.take(rows), advance)
                    except (ClusterFails, AnswerMalformed) as error:
                        await self._note(error)

    async def inspect(
        self, storage: Storage, blobs: Sequence[tuple[str, str]], among: int
    ) -> list[Facts | Unreadable]:
        """Inspect the blobs on the cluster, if they are among at least `_LEAST_UNREAD`.

        What it can't read, the own workers try.
        """
        if among >= _LEAST_BLOBS and self._may_be_asked:
            try:
                said, _ = await self._run(await self._connected(), inspect_part, storage, blobs)
                found = facts_of(said, len(blobs))
            except (ClusterFails, AnswerMalformed) as error:
                await self._note(error)
            else:
                left = [place for place, each in enumerate(found) if isinstance(each, Unreadable)]
                again = (
                    await self._own.inspect(storage, [blobs[place] for place in left], among) if left else []
                )
                for place, each in zip(left, again, strict=True):
                    found[place] = each
                return found
        return await self._own.inspect(storage, blobs, among)

    @property
    def _may_be_asked(self) -> bool:
        return time.monotonic() - self._failed_at >= _PAUSE_SECONDS

    async def _note(self, error: CollectorError) -> None:
        """Log why the cluster fails; leave it alone for a while."""
        _log.warning("cluster failed", reason=str(error))
        self._failed_at = time.monotonic()
        await self._disconnect()

    async def _load(self, owner: str, blobs: BlobColumns, advance: Callable[[int], int]) -> None:
        """Have all blobs read, range by range, in any order. Raises ClusterFails and WorkerUnavailable."""
        client = await self._connected()
        lanes = _RANGES_AHEAD * max(1, sum((await self._answer(client.nthreads)).values()))
        ranges = _ranges(len(blobs), lanes)
        numbered = iter(enumerate(ranges))
        _log.info("bulk read started", owner=owner, blobs=len(blobs), at_a_time=lanes)

        async def read_ranges() -> None:
            for number, each in numbered:
                is_last = number >= len(ranges) - lanes
                part = blobs.take(np.array(each))
                said, rows = await self._run(client, read_part, part, is_last)
                unreadable = unreadable_of(said, {part.name(row) for row in range(len(part))})
                await self._absorb(owner, unreadable, rows)
                read = advance(len(part))
                _log.info("bulk read progressed", owner=owner, read=read, blobs=len(blobs))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(lanes):
                    group.create_task(read_ranges())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _absorb(self, owner: str, unreadable: Mapping[str, str], rows: bytes) -> None:
        """Add a range's rows to those of their owner. Unreadable blobs are left to the owner's worker."""
        for blob, why in [*unreadable.items()][:_MOST_REASONS]:
            _log.warning("cluster skipped blob", blob=blob, reason=why[:_LONGEST_REASON])
        path = self._new_part()
        try:
            await asyncio.to_thread(path.write_bytes, rows)
            await self._workers.run_for(owner, absorb_rows, owner, path)
        finally:
            await asyncio.to_thread(delete_part, path)

    async def _run(self, client: Client, task: Callable[..., bytes], *arguments: object) -> Answer:
        """Return a task's answer; one that failed is tried again. Raises ClusterFails and AnswerMalformed."""
        for _ in range(1 + _RETRIES):
            answer = read_answer(await self._ask(client, task, *arguments))
            match answer.said:
                case {"fails": str() as why}:
                    continue
            return answer
        raise ClusterFails(why[:_LONGEST_REASON])

    async def _ask(self, client: Client, task: Callable[..., bytes], *arguments: object) -> object:
        """Return a task's result; cancel it on the cluster if nobody waits any more. Raises ClusterFails."""
        try:
            future = client.submit(task, ENGINE, *arguments, pure=False)
        except Exception as error:  # the client's connection may just have been lost
            raise _failure(error) from error
        try:
            return await self._answer(future.result)
        finally:
            if not future.done():
                with suppress(ClusterFails):
                    await self._answer(partial(future.cancel, force=True))
            future.release()

    async def _answer(self, call: Callable[[], Any]) -> Any:
        """Call a function of Dask's and await the answer.

        Raises ClusterFails: if that takes too long, or if a client was closed, whose calls fail at once.
        """
        try:
            async with asyncio.timeout(self._seconds):
                return await call()
        except TimeoutError:
            raise ClusterFails(f"no answer within {self._seconds:g} seconds (PGOF_TASK_SECONDS)") from None
        except Exception as error:  # a task's error, or one of Dask, of tornado or of the network
            raise _failure(error) from error

    async def _connected(self) -> Client:
        """Return a client that is connected. Raises ClusterFails."""
        async with self._connecting:
            if self._client is None:
                client = partial(
                    Client,
                    self._address,
                    asynchronous=True,
                    timeout=_CONNECT_SECONDS,
                    set_as_default=False,
                    name="pgo-collector",
                )
                self._client = await self._answer(client)
            return self._client

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(ClusterFails):
                await self._answer(partial(client.close, timeout=_CONNECT_SECONDS))


def count_workers(address: str) -> int:
    """Return how many workers the scheduler at Dask's address has. Raises ClusterFails."""
    try:
        with Client(address, timeout=_CONNECT_SECONDS, set_as_default=False) as client:
            return len(client.nthreads())
    except Exception as error:  # one of Dask, of tornado or of the network
        raise _failure(error) from error


def _ranges(count: int, lanes: int) -> list[range]:
    """Return consecutive ranges of `count` blobs, the larger ones first; `lanes` are read at a time."""
    ranges, begin = [], 0
    while begin < count:
        fair = -(-(count - begin) // (2 * lanes))
        end = min(begin + min(max(fair, _LEAST_BLOBS), _MOST_BLOBS), count)
        ranges.append(range(begin, end))
        begin = end
    return ranges


def _failure(error: Exception) -> ClusterFails:
    return ClusterFails(f"{type(error).__name__}: {error}"[:_LONGEST_REASON])
