"""The batcher of submitted bodies: those that arrive while others are validated are validated together."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from pprof_merge import Limits

from pgo_collector.errors import TaskOutOfMemory, WorkerUnavailable
from pgo_collector.traces.spans import Place, place, shared, untraced_context
from pgo_collector.workers.pool import Workers

# A task takes up to this many bodies; where more wait, a further task is started.
_BATCH_BODIES = 16

T = TypeVar("T")


class _Body(Protocol):
    @property
    def content(self) -> bytes | Path: ...


B = TypeVar("B", bound=_Body)


class _Waiting(NamedTuple, Generic[B, T]):
    """A body that waits since a time of the monotonic clock, in ns; `place` is its place in a trace."""

    body: B
    future: asyncio.Future[T]
    place: Place | None
    since: int


class SubmitBatcher(Generic[B, T]):
    """Validates bodies in workers, within limits: those in memory in batches, one in a file by itself.

    `validate` is the task: it returns the result or the error of each body.
    """

    def __init__(
        self,
        workers: Workers,
        limits: Limits,
        validate: Callable[[Sequence[B], Limits], Sequence[T | Exception]],
    ) -> None:
        self._workers = workers
        self._limits = limits
        self._validate_bodies = validate
        self._queue: deque[_Waiting[B, T]] = deque()
        # The tasks that empty the queue, which nothing else holds, and how many will look at it again.
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = 0

    async def validate(self, body: B) -> T:
        """Return the result for a body.

        Raises its error, such as ProfileError, NotACPUProfile or OSError, TaskOutOfMemory or
        WorkerUnavailable.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(body, future, place(), time.monotonic_ns())
        if isinstance(body.content, Path):
            await self._validate_batch([waiting])
        else:
            self._queue.append(waiting)
            # A further task empties the queue where more wait than the running ones take next.
            if self._running < self._workers.count and len(self._queue) > _BATCH_BODIES * self._running:
                self._running += 1
                task = asyncio.create_task(self._empty_queue(), context=untraced_context())
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        return await waiting.future

    async def _empty_queue(self) -> None:
        try:
            while self._queue:
                count = min(len(self._queue), _BATCH_BODIES)
                await self._validate_batch([self._queue.popleft() for _ in range(count)])
        finally:
            self._running -= 1  # at once, or a body that comes before the task has ended would wait for good

    async def _validate_batch(self, batch: Sequence[_Waiting[B, T]]) -> None:
        outcomes: Sequence[T | Exception]
        places = [waiting.place for waiting in batch if waiting.place is not None]
        for waiting in batch:
            if waiting.place is not None:
                waiting.place.add("workers", "batch", waiting.since, None, {"bodies": len(batch)})
        try:
            bodies = [waiting.body for waiting in batch]
            with shared(places):
                outcomes = await self._workers.run(self._validate_bodies, bodies, self._limits)
        except (WorkerUnavailable, TaskOutOfMemory) as error:
            if len(batch) > 1:  # one body may be the cause, so each is tried by itself
                for waiting in batch:
                    await self._validate_batch([waiting])
                return
            outcomes = [error]
        except Exception as error:  # noqa: BLE001 - the callers that wait get it
            outcomes = [error] * len(batch)
        settle([waiting.future for waiting in batch], outcomes)


def settle(futures: Sequence[asyncio.Future[T]], outcomes: Sequence[T | Exception]) -> None:
    """Give each future its outcome, unless it was cancelled."""
    for future, outcome in zip(futures, outcomes, strict=True):
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
