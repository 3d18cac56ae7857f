"""The reception: small bodies on their way through the workers, all that have come by then in one go."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from pprof_merge import Limits

from pgo_collector.engine.validation import SubmittedBody, ValidatedBody, validate_bodies
from pgo_collector.errors import TaskOutOfMemory, WorkerUnavailable
from pgo_collector.workers.pool import Workers

# So many bodies share a task; where more wait, a further worker is called.
_MOST_AT_ONCE = 16

_Arrived = tuple[SubmittedBody, asyncio.Future[ValidatedBody]]


class SubmitBatcher:
    """Has workers check bodies, within limits: together those that come while others are checked."""

    def __init__(self, workers: Workers, limits: Limits) -> None:
        self._workers = workers
        self._limits = limits
        self._waiting: deque[_Arrived] = deque()
        # How many tasks are at it, and these tasks, which nobody else holds.
        self._at_work = 0
        self._clerks: set[asyncio.Task[None]] = set()

    async def receive(self, body: SubmittedBody) -> ValidatedBody:
        """What came of it. Raises ProfileError, NotACPUProfile, OSError, TaskOutOfMemory or
        WorkerUnavailable.
        """
        future: asyncio.Future[ValidatedBody] = asyncio.get_running_loop().create_future()
        self._waiting.append((body, future))
        if self._at_work < self._workers.count and len(self._waiting) > _MOST_AT_ONCE * self._at_work:
            self._at_work += 1
            clerk = asyncio.create_task(self._receive_waiting())
            self._clerks.add(clerk)
            clerk.add_done_callback(self._clerks.discard)
        return await future

    async def _receive_waiting(self) -> None:
        try:
            while self._waiting:
                some = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST_AT_ONCE))]
                await self._receive(some)
        finally:
            self._at_work -= 1  # at once, or what comes before the task has ended would wait for good

    async def _receive(self, arrived: list[_Arrived]) -> None:
        bodies = [body for body, _ in arrived]
        outcomes: Sequence[ValidatedBody | Exception]
        try:
            outcomes = await self._workers.run(validate_bodies, bodies, self._limits)
        except (WorkerUnavailable, TaskOutOfMemory) as error:
            if len(arrived) > 1:  # what one of them did to the worker mustn't be the others' end
                for one in arrived:
                    await self._receive([one])
                return
            outcomes = [error]
        except Exception as error:  # noqa: BLE001 - those who wait are told
            outcomes = [error] * len(arrived)
        settle([future for _, future in arrived], outcomes)


T = TypeVar("T")


def settle(futures: Sequence[asyncio.Future[T]], outcomes: Sequence[T | Exception]) -> None:
    """Gives each future its outcome; who doesn't wait any more is passed over."""
    for future, outcome in zip(futures, outcomes, strict=True):
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
