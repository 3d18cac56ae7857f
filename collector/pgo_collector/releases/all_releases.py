"""The releases of all services."""

from __future__ import annotations

import asyncio

from pgo_collector.engine.types import CPU
from pgo_collector.merges.merges import Merges
from pgo_collector.merges.rules_folder import RulesFolder
from pgo_collector.releases.candidates import Candidates
from pgo_collector.releases.reports import Reports
from pgo_collector.releases.service_releases import ServiceReleases
from pgo_collector.settings import Settings


class AllReleases:
    """Those of each service, from when they are asked for first."""

    def __init__(self, merges: Merges, reports: Reports, rules: RulesFolder, settings: Settings) -> None:
        self._merges = merges
        self._reports = reports
        self._rules = rules
        self._settings = settings
        self._of_service: dict[str, ServiceReleases] = {}

    async def of(self, service: str) -> ServiceReleases:
        """The releases of a service. Those of one of which nothing is known aren't kept in memory."""
        if service not in self._of_service and not await asyncio.to_thread(self._is_known, service):
            return self._releases(service)
        return self._of_service.setdefault(service, self._releases(service))

    def _is_known(self, service: str) -> bool:
        store = self._merges.store
        return (store.folder.releases / service / CPU).is_dir() or service in store.catalog.services()

    def _releases(self, service: str) -> ServiceReleases:
        candidates = Candidates(self._merges, service, self._rules)
        return ServiceReleases(service, candidates, self._reports, self._settings)
