"""Deliveries: events go from the outbox to the endpoint, each at least once, until they are too old."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from math import inf
from typing import NoReturn

import structlog
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.catalog.outbox import Failed, Outbox, Waiting
from pgo_collector.hooks.endpoint import Attempt, Endpoint, pause_seconds
from pgo_collector.model.times import DAY_NANOS
from pgo_collector.store.store import Store

_TICK_SECONDS = 1.0
_AT_ONCE = 8
_log = structlog.get_logger()


class Deliveries:
    """One of these delivers for a data folder; `tell` hears of outcomes, and how many there were of each.

    An event that fails is put off by itself, so that it holds up no other. After a failure nothing is tried
    for a while, and then one event, so that a receiver which is down isn't met by all that wait.
    """

    def __init__(
        self, store: Store, endpoint: Endpoint, days: float, most: int, tell: Callable[[str, int], None]
    ) -> None:
        self._store = store
        self._outbox = Outbox(store.catalog)
        self._endpoint = endpoint
        self._most_nanos = days * DAY_NANOS
        self._most = most
        self._tell = tell
        self._failures = 0
        self._not_before = -inf  # by the monotonic clock

    async def follow(self) -> NoReturn:
        """Delivers until it is cancelled; what is then under way is tried again after the next start."""
        async with self._endpoint:
            while True:
                try:
                    has_more = await self._round()
                except SQLAlchemyError as error:
                    _log.error("events not delivered, the catalog fails", reason=str(error))
                    has_more = False
                    self._hold(
                        _backoff(self._failures + 1)
                    )  # or what can't be settled would go out each second
                await asyncio.sleep(0 if has_more else _TICK_SECONDS)

    async def _round(self) -> bool:
        """Delivers what is due, if it may be tried; whether there may be more. Raises SQLAlchemyError."""
        now = time.time_ns()
        await self._drop(now)
        if time.monotonic() < self._not_before:
            return False
        most = 1 if self._failures else _AT_ONCE
        events = await asyncio.to_thread(self._outbox.due, now, most)
        if events:
            await self._deliver(events)
        return len(events) == most and time.monotonic() >= self._not_before

    async def _drop(self, now: int) -> None:
        """Drops what has waited for too long, and what is too much."""
        backlog = await asyncio.to_thread(self._outbox.backlog)
        if backlog.oldest_nanos is not None and backlog.oldest_nanos < now - self._most_nanos:
            oldest = int(now - self._most_nanos)
            self._dropped("too_old", await self._store.write(self._outbox.drop_older, oldest))
        if backlog.events > self._most:
            self._dropped("too_many", await self._store.write(self._outbox.drop_all_but, self._most))

    def _dropped(self, reason: str, count: int) -> None:
        if count:
            self._tell(reason, count)
            _log.error("events dropped", reason=reason, count=count)

    async def _deliver(self, events: list[Waiting]) -> None:
        """Tries each of them once, all at the same time; those that are done count if this is cancelled."""
        tasks = {asyncio.create_task(self._endpoint.post(event)): event for event in events}
        try:
            await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._settle(
                {event: task.result() for task, event in tasks.items() if not task.cancelled()}
            )

    async def _settle(self, attempts: Mapping[Waiting, Attempt]) -> None:
        delivered, failed, asked = [], [], 0.0
        for event, attempt in attempts.items():
            self._tell(attempt.outcome, 1)
            if attempt.outcome == "delivered":
                delivered.append(event.number)
                _log.info("event delivered", id=event.id, attempt=event.attempts + 1)
                continue
            asked = max(asked, attempt.asked_seconds)
            seconds = max(_backoff(event.attempts + 1), attempt.asked_seconds)
            failed.append(Failed(event.number, time.time_ns() + int(seconds * 10**9)))
            _log.warning(
                "event not delivered", id=event.id, attempt=event.attempts + 1, reason=attempt.reason
            )
        if delivered:
            self._failures = 0
        elif failed:
            self._failures += 1
            asked = max(asked, _backoff(self._failures))
        self._hold(asked)
        if any(attempt.outcome == "gone" for attempt in attempts.values()):
            self._hold(inf)
            _log.error("the receiver is gone, no event is tried until the next start")
        await self._store.write(self._outbox.settle, delivered, failed)

    def _hold(self, seconds: float) -> None:
        """Nothing is tried for so long."""
        self._not_before = max(self._not_before, time.monotonic() + seconds)


class NoDeliveries:
    """Deliveries that are off; what is in the outbox stays there."""

    async def follow(self) -> None:
        """Nothing."""


def _backoff(failures: int) -> float:
    return pause_seconds(failures, random.random())  # noqa: S311 - spreads load, guards nothing
