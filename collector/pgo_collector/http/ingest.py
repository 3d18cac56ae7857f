"""The intake: how a body becomes a stored profile, whichever API it came by."""

from __future__ import annotations

from starlette.requests import Request

from pgo_collector.engine.validation import SubmittedBody, ValidatedBody
from pgo_collector.http.body import Bodies
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
        self._limits = settings.limits
        self._reception = SubmitBatcher(store.workers, settings.limits)
        self._largest_body = settings.largest_body
        self._bodies = bodies

    async def take(self, request: Request, series: Series, created_nanos: int | None = None) -> Submitted:
        """Stores the body of a request. Raises LabelsInvalid and QuotaUsedUp before it is read, and as
        `Bodies.take`, `SubmitBatcher.receive` and `Store.add` do.
        """
        series.check_path()
        await self._quotas.check(series.service)
        async with (
            self._store.arriving() as part,
            self._bodies.take(request, part, self._largest_body, _BODY) as body,
        ):
            request.state.bytes = body.size
            if body.held is None:
                submitted = await self._store.submit(part, series, self._limits, created_nanos)
            else:
                received = await self._received(SubmittedBody(body.held, series.type))
                content = received.packed or body.held
                arrival = Submission(part, series, received.facts, created_nanos, content)
                submitted = await self._store.add(arrival)
        if submitted.is_new:
            self._quotas.count(series.service, submitted.facts.size)
        request.state.profile = submitted.facts.digest
        request.state.submit = "stored" if submitted.is_new else "duplicate"
        return submitted

    async def _received(self, body: SubmittedBody) -> ValidatedBody:
        try:
            return await self._reception.receive(body)
        except OSError as error:
            raise not_stored("profile", error) from error
