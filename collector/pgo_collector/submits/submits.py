"""Ingest: a submitted body becomes a stored profile, the same way for every API and every size.

check the labels and the quota → read the body → validate it in a worker → store it durably → answer
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from pprof_merge import ProfileError
from starlette.requests import Request

from pgo_collector.engine.pushes import PlacedProfile, PushBody, Unpack, validate_pushes
from pgo_collector.engine.validation import SubmittedBody, ValidatedBody, validate_bodies
from pgo_collector.errors import EmptyBody, EmptyProfile, PushRefused, Refusal
from pgo_collector.http.auth import check_scope
from pgo_collector.http.context import context_of
from pgo_collector.model.series import Series
from pgo_collector.settings import Settings
from pgo_collector.store.folder import remove_push
from pgo_collector.store.group_commit import Submission, Submitted
from pgo_collector.store.store import Store, not_stored
from pgo_collector.submits.batcher import SubmitBatcher
from pgo_collector.submits.body import BodyBound, BodyReader
from pgo_collector.submits.quotas import Quotas
from pgo_collector.traces.spans import span

_EXPECTED = "a profile, gzip or bare protobuf"


class Ingest:
    """Stores submitted profiles, within the quotas and the limits of the settings."""

    def __init__(self, store: Store, quotas: Quotas, settings: Settings, bodies: BodyReader) -> None:
        self._store = store
        self._quotas = quotas
        self._submits = SubmitBatcher(store.workers, settings.limits, validate_bodies)
        self._pushes = SubmitBatcher(store.workers, settings.limits, validate_pushes)
        self._bound = BodyBound(
            settings.largest_body, "PGOF_MAX_COMPRESSED_BYTES if it is gzip, else PGOF_MAX_INFLATED_BYTES"
        )
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
        `SubmitBatcher.validate` and `Store.add` raise, NotStored in place of an OSError, and EmptyProfile for
        a profile without samples unless it `may_be_empty`.
        """
        context = context_of(request)
        series.check_path()
        with span("catalog", "quota"):
            await self._quotas.check(series.service)
        async with (
            self._store.submission_part() as part,
            self._bodies.read(request, part, self._bound, _EXPECTED) as body,
        ):
            context.body_bytes = body.size
            valid = await self._validate(SubmittedBody(body.content or part, series.type))
            if not valid.facts.samples and not may_be_empty:
                raise EmptyProfile("the profile has no samples")
            submission = Submission(part, series, valid.facts, created_nanos, valid.packed or body.content)
            return await self._add(request, submission)

    async def keep(self, request: Request, series: Series, content: bytes) -> Submitted:
        """Store a profile that is no body of a request, as `submit` does; return what was stored."""
        series.check_path()
        await self._quotas.check(series.service)
        async with self._store.submission_part() as part:
            valid = await self._validate(SubmittedBody(content, series.type))
            return await self._add(
                request, Submission(part, series, valid.facts, None, valid.packed or content)
            )

    async def push(self, request: Request, unpack: Unpack) -> None:
        """Store the profiles in a body that `unpack` takes apart in a worker.

        A profile without samples isn't stored, and an empty body has no profiles. Raises what
        `BodyReader.read` and `unpack` raise, TaskOutOfMemory, WorkerUnavailable or NotStored if nothing of
        the body can be read, the error of a profile that is refused, and PushRefused if several are; all
        others are stored.
        """
        with suppress(EmptyBody):
            await self._push(request, unpack)

    async def _push(self, request: Request, unpack: Unpack) -> None:
        async with (
            self._store.submission_part() as part,
            self._bodies.read(request, part, self._bound, _EXPECTED) as body,
        ):
            context_of(request).body_bytes = body.size
            try:
                with span("workers", "validate"), self._expecting(body.content):
                    placed = await self._pushes.validate(PushBody(body.content or part, unpack))
                stored = await asyncio.gather(*(self._store_pushed(request, profile) for profile in placed))
            except OSError as error:
                raise not_stored("profile", error) from error
            finally:
                if body.content is None:
                    await asyncio.to_thread(remove_push, part)
        errors = [error for error in stored if error is not None]
        if len(errors) > 1:
            raise PushRefused(errors)
        for only in errors:
            raise only

    async def _store_pushed(
        self, request: Request, profile: PlacedProfile | Exception
    ) -> Refusal | ProfileError | None:
        """Store a profile of a push; return why it is refused, if it is."""
        try:
            if isinstance(profile, Exception):
                raise profile
            series = profile.series
            with self._store.expecting():
                check_scope(request, series.service)
                series.check_path()
                await self._quotas.check(series.service)
            async with self._store.submission_part(profile.part) as part:
                await self._add(
                    request,
                    Submission(part, series, profile.facts, profile.created_nanos, profile.content),
                )
        except (Refusal, ProfileError) as error:
            return error
        except OSError as error:
            refusal = not_stored("profile", error)
            refusal.__cause__ = error
            return refusal
        return None

    async def _add(self, request: Request, submission: Submission) -> Submitted:
        with span("store", "store"):
            submitted = await self._store.add(submission)
        if submitted.is_new:
            self._quotas.count(submission.series.service, submitted.facts.size)
        context = context_of(request)
        context.profile = submitted.facts.digest
        context.submits.append("stored" if submitted.is_new else "duplicate")
        return submitted

    def _expecting(self, content: bytes | Path | None) -> AbstractContextManager[None]:
        """Have transactions wait for a profile of this body, unless it is in a file: those take too long."""
        return self._store.expecting() if isinstance(content, bytes) else nullcontext()

    async def _validate(self, body: SubmittedBody) -> ValidatedBody:
        try:
            with span("workers", "validate"), self._expecting(body.content):
                return await self._submits.validate(body)
        except OSError as error:
            raise not_stored("profile", error) from error
