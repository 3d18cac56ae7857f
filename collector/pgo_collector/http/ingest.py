"""Ingest: a submitted body becomes a stored profile, whichever API and in whatever size it came.

check the path and the quota → take the body → validate it in a worker → store it, durably → answer
"""

from __future__ import annotations

from starlette.requests import Request

from pgo_collector.engine.validation import SubmittedBody, ValidatedBody
from pgo_collector.errors import EmptyProfile
from pgo_collector.http.body import Bodies
from pgo_collector.http.context import context_of
from pgo_collector.model.series import Series
from pgo_collector.settings import Settings
from pgo_collector.store.group_commit import Submission, Submitted
from pgo_collector.store.quotas import Quotas
from pgo_collector.store.store import Store, not_stored
from pgo_collector.workers.batcher import SubmitBatcher

_BODY = "a profile, gzip or bare protobuf"


class Ingest:
    """Takes profiles into a store, within quotas and the limits of the settings."""

    def __init__(self, store: Store, quotas: Quotas, settings: Settings, bodies: Bodies) -> None:
        self._store = store
        self._quotas = quotas
        self._batcher = SubmitBatcher(store.workers, settings.limits)
        self._largest_body = settings.largest_body
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

        A profile that doesn't say when it was taken was at `created_nanos`, or else now. Raises LabelsInvalid
        and QuotaUsedUp before the body is read, what `Bodies.take`, `SubmitBatcher.validate` and `Store.add`
        raise, and EmptyProfile for one without samples that may not be empty; an OSError becomes NotStored.
        """
        context = context_of(request)
        series.check_path()
        await self._quotas.check(series.service)
        async with (
            self._store.arriving() as part,
            self._bodies.take(request, part, self._largest_body, _BODY) as body,
        ):
            context.body_bytes = body.size
            valid = await self._validate(SubmittedBody(body.held or part, series.type))
            if not valid.facts.samples and not may_be_empty:
                raise EmptyProfile("the profile has no samples")
            submission = Submission(part, series, valid.facts, created_nanos, valid.packed or body.held)
            submitted = await self._store.add(submission)
        if submitted.is_new:
            self._quotas.count(series.service, submitted.facts.size)
        context.profile = submitted.facts.digest
        context.submit = "stored" if submitted.is_new else "duplicate"
        return submitted

    async def _validate(self, body: SubmittedBody) -> ValidatedBody:
        try:
            return await self._batcher.validate(body)
        except OSError as error:
            raise not_stored("profile", error) from error
