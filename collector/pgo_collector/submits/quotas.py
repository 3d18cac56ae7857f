"""Quotas: how many profiles a service may submit in a day, and how many bytes of it may be stored."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from math import inf

from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.inventory import Inventory
from pgo_collector.errors import QuotaUsedUp

_DAY_SECONDS = 86_400
# How long usage is cached. Deletes, combines and roll-ups make room, which is noticed after that time, and so
# is what other collectors store.
_READ_SECONDS = 30
_MEGABYTE = 1 << 20


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
    """The quotas, the same for every service; inf is no quota."""

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
