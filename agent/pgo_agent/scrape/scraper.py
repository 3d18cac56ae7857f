"""Scrapes targets: one at a time each, and at most so many at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import httpx

from pgo_agent.endpoint import query_of
from pgo_agent.errors import ScrapeFailed
from pgo_agent.scrape.dispatch import Dispatch
from pgo_agent.scrape.fetch import client_for, fetch
from pgo_agent.scrape.tally import Failure
from pgo_agent.scrape.target import Profile, Target

_log = logging.getLogger(__name__)


class Scraper:
    """Takes all profiles of a target at the same time, so that they are of the same seconds.

    At most `slots` targets are scraped at once, and `limit` are the bytes that a profile may have, also
    inflated. `labels` are put on all profiles, before a target's own.
    """

    def __init__(self, dispatch: Dispatch, *, slots: int, limit: int, labels: Mapping[str, str]) -> None:
        self._dispatch = dispatch
        self._limit = limit
        self._labels = labels
        self.slots = asyncio.Semaphore(slots)

    async def scrape(self, target: Target) -> list[Failure]:
        """What it didn't give, to who holds one of the `slots`; nothing is raised, whatever a target does."""
        try:
            async with client_for(target) as client:
                attempts = (self._attempt(client, target, profile) for profile in target.profiles)
                outcomes = await asyncio.gather(*attempts)
        except ScrapeFailed as error:
            return [Failure(target.name, profile.type, error) for profile in target.profiles]
        return [failure for failure in outcomes if failure is not None]

    async def _attempt(self, client: httpx.AsyncClient, target: Target, profile: Profile) -> Failure | None:
        try:
            with self._dispatch.room() as body:
                await fetch(client, profile, target.seconds, self._limit, body)
                query = (
                    *query_of(target.service, {**dict(target.labels), **self._labels}),
                    ("type", profile.type),
                )
                await self._dispatch.take(body, query, self._limit)
        except ScrapeFailed as error:
            return Failure(target.name, profile.type, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other targets go on
            _log.exception("%s: %s", target.name, profile.type)
            return Failure(target.name, profile.type, ScrapeFailed(type(error).__name__, str(error)))
        return None
