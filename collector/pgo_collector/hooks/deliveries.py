"""Deliveries: the event of a stored profile, and its way from the outbox to the endpoint, at least once.

Events have the payload that the Standard Webhooks specification recommends.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import time
from collections.abc import Callable, Mapping
from math import inf
from typing import NoReturn

import structlog
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.catalog.leases import Lease
from pgo_collector.catalog.outbox import FailedEvent, Outbox, WaitingEvent
from pgo_collector.errors import LeaseHeld, LeaseLost
from pgo_collector.hooks.endpoint import Attempt, Endpoint, pause_seconds
from pgo_collector.model.facts import Event, Facts
from pgo_collector.model.series import BlobName
from pgo_collector.model.times import DAY_NANOS, format_time
from pgo_collector.store.locks import Locks
from pgo_collector.store.store import Store
from pgo_collector.traces.tracing import NO_TRACING, Tracing

_TICK_SECONDS = 1.0
# How often a collector tries to take the lease that another one has.
_LEASE_PAUSE_SECONDS = 5.0
_AT_ONCE = 8
_TYPE = "profile.stored"
_log = structlog.get_logger()


def announce(name: BlobName, facts: Facts) -> list[Event]:
    """Return the one event of a profile that is stored now; it describes the profile as /v1/profiles does."""
    now = time.time_ns()
    id_ = f"evt_{secrets.token_hex(16)}"
    stored_at = format_time(now)
    body = {
        "type": _TYPE,
        "id": id_,
        "timestamp": stored_at,
        "data": {
            "id": str(name),
            "service": name.series.service,
            "type": name.series.type,
            "labels": dict(name.series.labels),
            "time": format_time(name.identity.time_nanos),
            "duration_seconds": facts.duration_nanos / 10**9,
            "bytes": facts.size,
            "samples": facts.samples,
            "stored_at": stored_at,
        },
    }
    return [Event(id_, now, json.dumps(body))]


class Deliveries:
    """The background task that delivers the events of a catalog. One collector at a time does.

    `is_trusted` says whether events may be dropped by a clock that shows a time in ns since 1970. `observe`
    is called with each outcome and its number of events. A failed event is postponed by itself, so that it
    doesn't hold others up. After a failure nothing is tried for a while, and then one event alone, so that a
    receiver that is down doesn't get all waiting events at once.
    """

    def __init__(
        self,
        store: Store,
        locks: Locks,
        endpoint: Endpoint,
        *,
        max_days: float,
        max_events: int,
        is_trusted: Callable[[int], bool],
        observe: Callable[[str, int], None],
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._store = store
        self._locks = locks
        self._outbox = Outbox(store.catalog)
        self._endpoint = endpoint
        self._max_age_nanos = max_days * DAY_NANOS
        self._max_events = max_events
        self._is_trusted = is_trusted
        self._observe = observe
        self._tracing = tracing
        self._failures = 0
        self._not_before = -inf  # by the monotonic clock

    async def run(self) -> NoReturn:
        """Deliver events until cancelled; attempts that are cut short are repeated after the next start."""
        async with self._endpoint:
            while True:
                try:
                    async with self._locks.lease("webhook") as lease:
                        await self._rounds(lease)
                except LeaseHeld:
                    await asyncio.sleep(_LEASE_PAUSE_SECONDS)
                except (SQLAlchemyError, LeaseLost) as error:
                    _log.error("outbox failed", reason=str(error))
                    # Without a pause, events whose delivery can't be recorded would be sent every second.
                    self._pause(_backoff_seconds(self._failures + 1))
                    await asyncio.sleep(_TICK_SECONDS)

    async def _rounds(self, lease: Lease) -> NoReturn:
        """Deliver events as long as this collector has the lease. Raises LeaseLost and SQLAlchemyError."""
        while True:
            lease.check_time()
            has_more = await self._round()
            await asyncio.sleep(0 if has_more else _TICK_SECONDS)

    async def _round(self) -> bool:
        """Deliver the due events, unless in a pause; return whether more may be due.

        Raises SQLAlchemyError.
        """
        now = time.time_ns()
        await self._drop(now)
        if time.monotonic() < self._not_before:
            return False
        limit = 1 if self._failures else _AT_ONCE
        events = await asyncio.to_thread(self._outbox.due, now, limit)
        if events:
            with self._tracing.background("hooks", "deliver events"):
                await self._deliver(events)
        return len(events) == limit and time.monotonic() >= self._not_before

    async def _drop(self, now: int) -> None:
        """Drop events that have waited for too long, and the oldest ones of too many."""
        backlog = await asyncio.to_thread(self._outbox.backlog)
        oldest = int(max(now - self._max_age_nanos, 0))
        if backlog.oldest_nanos is not None and backlog.oldest_nanos < oldest and self._is_trusted(now):
            self._dropped("too_old", await self._store.write(self._outbox.drop_older, oldest))
        if backlog.events > self._max_events:
            self._dropped("too_many", await self._store.write(self._outbox.drop_all_but, self._max_events))

    def _dropped(self, reason: str, count: int) -> None:
        if count:
            self._observe(reason, count)
            _log.error("events dropped", reason=reason, count=count)

    async def _deliver(self, events: list[WaitingEvent]) -> None:
        """Try each event once, all at the same time; if cancelled, record the attempts that have ended."""
        tasks = {asyncio.create_task(self._endpoint.post(event)): event for event in events}
        try:
            await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._record(
                {event: task.result() for task, event in tasks.items() if not task.cancelled()}
            )

    async def _record(self, attempts: Mapping[WaitingEvent, Attempt]) -> None:
        delivered, failed, asked = [], [], 0.0
        for event, attempt in attempts.items():
            self._observe(attempt.outcome, 1)
            if attempt.outcome == "delivered":
                delivered.append(event.number)
                _log.info("event delivered", id=event.id, attempt=event.attempts + 1)
                continue
            asked = max(asked, attempt.asked_seconds)
            seconds = max(_backoff_seconds(event.attempts + 1), attempt.asked_seconds)
            failed.append(FailedEvent(event.number, time.time_ns() + int(seconds * 10**9)))
            _log.warning(
                "event not delivered", id=event.id, attempt=event.attempts + 1, reason=attempt.reason
            )
        if delivered:
            self._failures = 0
        elif failed:
            self._failures += 1
            asked = max(asked, _backoff_seconds(self._failures))
        self._pause(asked)
        if any(attempt.outcome == "gone" for attempt in attempts.values()):
            self._pause(inf)
            _log.error("receiver gone")
        await self._store.write(self._outbox.record_attempts, delivered, failed)

    def _pause(self, seconds: float) -> None:
        """Try nothing for this number of seconds."""
        self._not_before = max(self._not_before, time.monotonic() + seconds)


class NoDeliveries:
    """The background task of a collector without a webhook: events in the outbox stay there."""

    async def run(self) -> None:
        """Deliver nothing."""


def _backoff_seconds(failures: int) -> float:
    return pause_seconds(failures, random.random())  # noqa: S311 - spreads load, guards nothing
