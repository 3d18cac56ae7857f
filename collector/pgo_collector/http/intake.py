"""The intake: how a body becomes a stored profile, whichever API it came by."""

from __future__ import annotations

from starlette.requests import Request

from pgo_collector.http.body import take_body
from pgo_collector.settings import Settings
from pgo_collector.store.arrivals import Submitted
from pgo_collector.store.quotas import Quotas
from pgo_collector.store.series import Series
from pgo_collector.store.store import Store

_BODY = "a profile, gzip or bare protobuf"


class Intake:
    """Takes profiles into a store, within quotas and the limits of the settings."""

    def __init__(self, store: Store, quotas: Quotas, settings: Settings) -> None:
        self._store = store
        self._quotas = quotas
        self._limits = settings.limits
        self._largest_body = settings.largest_body
        self._body_seconds = settings.body_timeout

    async def take(self, request: Request, series: Series, created_nanos: int | None = None) -> Submitted:
        """Stores the body of a request. Raises QuotaUsedUp before it is read, and as `take_body` and
        `Store.submit` do.
        """
        await self._quotas.check(series.service)
        async with self._store.arriving() as part:
            body = await take_body(request, part, self._largest_body, self._body_seconds, _BODY)
            request.state.bytes = body.size
            submitted = await self._store.submit(part, series, self._limits, created_nanos, body.held)
        if submitted.is_new:
            self._quotas.count(series.service, submitted.facts.size)
        request.state.profile = submitted.facts.digest
        request.state.submit = "stored" if submitted.is_new else "duplicate"
        return submitted
