"""Submits: a submitted body becomes a stored profile, the same way for every API and every size.

check the labels and the quota → read the body → validate it in a worker → commit it durably → answer
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from pprof_merge import Limits, ProfileError
from starlette.requests import Request

from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.inventory import Inventory
from pgo_collector.engine.pushes import PlacedProfile, PushBody, Unpack, validate_pushes
from pgo_collector.engine.validation import SubmittedBody, validate_bodies
from pgo_collector.errors import (
    EmptyBody,
    EmptyProfile,
    PushRefused,
    QuotaUsedUp,
    Refusal,
    TaskOutOfMemory,
    WorkerUnavailable,
)
from pgo_collector.http.auth import check_scope, context_of
from pgo_collector.model.series import Series
from pgo_collector.settings import Settings
from pgo_collector.store.store import not_stored
from pgo_collector.submits.body import LARGEST_BODY, BodyBound, BodyReader
from pgo_collector.submits.commit import Commits, Submission, Submitted, settle
from pgo_collector.submits.function_metrics import RuleSet
from pgo_collector.traces.spans import Place, place, shared, span, untraced_context
from pgo_collector.workers.pool import Workers

# A task takes up to this many bodies; where more wait, a further task is started.
_BATCH_BODIES = 16
_EXPECTED = "a profile, gzip or bare protobuf"
_DAY_SECONDS = 86_400
# How long usage is cached. Deletes, combines and roll-ups make room, which is noticed after that time, and so
# is what other collectors store.
_READ_SECONDS = 30
_MEGABYTE = 1 << 20

T = TypeVar("T")


class Submits:
    """Stores submitted profiles, within the quotas and the limits of the settings."""

    def __init__(
        self, commits: Commits, workers: Workers, quotas: Quotas, settings: Settings, bodies: BodyReader
    ) -> None:
        self._commits = commits
        self._quotas = quotas
        self._functions = commits.functions
        self._submits = SubmitBatcher(workers, settings.limits, validate_bodies)
        self._pushes = SubmitBatcher(workers, settings.limits, validate_pushes)
        self._bound = BodyBound(settings.largest_body, LARGEST_BODY)
        self._bodies = bodies

    async def submit(
        self,
        request: Request,
        series: Series,
        created_nanos: int | None = None,
        *,
        may_be_empty: bool = True,
    ) -> Submitted:
        """Store the body of a request in a series and return what was stored.

        A profile without a time of its own gets `created_nanos`, in ns since 1970, or else the time of now.
        Raises LabelsInvalid and QuotaUsedUp before the body is read, what `BodyReader.read`,
        `SubmitBatcher.validate` and `Commits.add` raise, NotStored in place of an OSError, and EmptyProfile
        for a profile without samples unless it `may_be_empty`.
        """
        series.check_path()
        with span("catalog", "quota"):
            await self._quotas.check(series.service)
        async with self._bodies.read(request, self._bound, _EXPECTED) as body:
            context_of(request).body_bytes = body.size
            return await self._store(request, series, body.content, created_nanos, may_be_empty=may_be_empty)

    async def keep(self, request: Request, series: Series, content: bytes) -> Submitted:
        """Store a profile that is no body of a request, as `submit` does; return what was stored."""
        series.check_path()
        await self._quotas.check(series.service)
        return await self._store(request, series, content)

    async def push(self, request: Request, unpack: Unpack) -> None:
        """Store the profiles in a body that `unpack` takes apart in a worker.

        A profile without samples isn't stored, and an empty body has no profiles. Raises what
        `BodyReader.read` and `unpack` raise, TaskOutOfMemory, WorkerUnavailable or NotStored if nothing of
        the body can be read, the error of a profile that is refused, and PushRefused if several are; all
        others are stored.
        """
        errors: list[Refusal | ProfileError] = []
        rules = self._functions.rules
        with suppress(EmptyBody):
            async with self._bodies.read(request, self._bound, _EXPECTED) as body:
                context_of(request).body_bytes = body.size
                try:
                    with span("workers", "validate"), self._commits.expecting(body.content):
                        placed = await self._pushes.validate(PushBody(body.content, unpack, rules.patterns))
                    stored = await asyncio.gather(
                        *(self._store_pushed(request, each, rules) for each in placed)
                    )
                except OSError as error:
                    raise not_stored("profile", error) from error
            errors += [error for error in stored if error is not None]
        if len(errors) > 1:
            raise PushRefused(errors)
        for only in errors:
            raise only

    async def _store(
        self,
        request: Request,
        series: Series,
        content: bytes | Path,
        created_nanos: int | None = None,
        *,
        may_be_empty: bool = True,
    ) -> Submitted:
        """Validate the bytes of a profile, or the file that they are in, and commit it."""
        rules = self._functions.rules
        patterns = rules.patterns if rules.selecting(series) else ()
        try:
            with span("workers", "validate"), self._commits.expecting(content):
                valid = await self._submits.validate(
                    SubmittedBody(content, series.type, patterns, series.service)
                )
        except OSError as error:
            raise not_stored("profile", error) from error
        if not valid.facts.samples and not may_be_empty:
            raise EmptyProfile("the profile has no samples")
        submission = Submission(valid.packed or content, series, valid.facts, created_nanos)
        submitted = await self._commit(request, submission)
        if submitted.is_new:
            self._functions.count(rules, series, valid.measured)
        return submitted

    async def _store_pushed(
        self, request: Request, profile: PlacedProfile | Exception, rules: RuleSet
    ) -> Refusal | ProfileError | None:
        """Store a profile of a push; return why it is refused, if it is."""
        try:
            if isinstance(profile, Exception):
                raise profile
            series = profile.series
            with self._commits.expecting():
                check_scope(request, series.service)
                series.check_path()
                await self._quotas.check(series.service)
            submission = Submission(profile.content, series, profile.facts, profile.created_nanos)
            submitted = await self._commit(request, submission)
            if submitted.is_new:
                self._functions.count(rules, series, profile.measured)
        except (Refusal, ProfileError) as error:
            return error
        except OSError as error:
            refusal = not_stored("profile", error)
            refusal.__cause__ = error
            return refusal
        return None

    async def _commit(self, request: Request, submission: Submission) -> Submitted:
        with span("store", "store"):
            submitted = await self._commits.add(submission)
        if submitted.is_new:
            self._quotas.count(submission.series.service, submitted.facts.size)
        context = context_of(request)
        context.profile = submitted.facts.digest
        context.submits.append("stored" if submitted.is_new else "duplicate")
        return submitted


@dataclass(slots=True)
class _Usage:
    """The usage of one service on one UTC day, in days since 1970: read from the catalog at `read`, in
    seconds since 1970, and counted on since then.
    """

    day: int
    read: float
    profiles: int
    size: int


class Quotas:
    """How many profiles a service may submit in a day, and how many bytes of it may be stored.

    They are the same for every service; inf is no quota.
    """

    def __init__(self, catalog: Catalog, profiles_a_day: float, megabytes: float) -> None:
        self._catalog = catalog
        self._inventory = Inventory(catalog)
        self._profiles = profiles_a_day
        self._size = megabytes * _MEGABYTE
        self._usages: dict[str, _Usage] = {}

    async def check(self, service: str) -> None:
        """Raise QuotaUsedUp if a service has reached a quota."""
        if self._profiles == self._size == inf:
            return
        now = time.time()
        usage = await self._usage(service, now)
        if usage.profiles >= self._profiles:
            wait = _DAY_SECONDS - int(now) % _DAY_SECONDS
            raise QuotaUsedUp(
                f"service {service} has submitted its {self._profiles:g} profiles of today"
                " (PGOF_QUOTA_PROFILES): submit again after midnight UTC",
                wait,
            )
        if usage.size >= self._size:
            raise QuotaUsedUp(
                f"service {service} has its {self._size / _MEGABYTE:g} MiB stored (PGOF_QUOTA_MEGABYTES):"
                " submit again when retention, a roll-up or a combine has made room",
                _READ_SECONDS,
            )

    def count(self, service: str, size: int) -> None:
        """Count a profile of a service that was stored, with its size in bytes."""
        if service in self._usages:
            self._usages[service].profiles += 1
            self._usages[service].size += size

    async def _usage(self, service: str, now: float) -> _Usage:
        known, day = self._usages.get(service), int(now) // _DAY_SECONDS
        if known is not None and known.day == day and now - known.read < _READ_SECONDS:
            return known
        since = day * _DAY_SECONDS * 10**9
        profiles, size = await asyncio.to_thread(self._inventory.usage, service, since)
        come = await asyncio.to_thread(self._catalog.submitted, service, day)
        if come is None:
            # A profile's time is when it was taken. At the first look, those taken today stand for those
            # submitted today.
            come = self._usages[service].profiles if known is not None and known.day == day else profiles
        usage = self._usages[service] = _Usage(day, now, come, size)
        return usage


class _Body(Protocol):
    @property
    def content(self) -> bytes | Path: ...

    @property
    def owner(self) -> str: ...


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
                outcomes = await self._workers.run_near(
                    bodies[0].owner, self._validate_bodies, bodies, self._limits
                )
        except (WorkerUnavailable, TaskOutOfMemory) as error:
            if len(batch) > 1:  # one body may be the cause, so each is tried by itself
                for waiting in batch:
                    await self._validate_batch([waiting])
                return
            outcomes = [error]
        except Exception as error:  # noqa: BLE001 - the callers that wait get it
            outcomes = [error] * len(batch)
        settle([waiting.future for waiting in batch], outcomes)
