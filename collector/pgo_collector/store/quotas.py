"""Quotas: how many profiles of a service are taken in a day, and how many bytes of it are kept."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from math import inf

from pgo_collector.catalog.inventory import Inventory
from pgo_collector.errors import QuotaUsedUp

_DAY_SECONDS = 86_400
# What is deleted, combined or rolled up makes room, which is seen when the catalog is asked again.
_READ_SECONDS = 30
_MEGABYTE = 1 << 20


@dataclass(slots=True)
class _Usage:
    """Of one service on one day, in days since 1970 (UTC), as of `read`, with what has come since."""

    day: int
    read: float
    profiles: int
    size: int


class Quotas:
    """The same ones for every service; inf for none."""

    def __init__(self, inventory: Inventory, profiles_a_day: float, megabytes: float) -> None:
        self._inventory = inventory
        self._profiles = profiles_a_day
        self._size = megabytes * _MEGABYTE
        self._usages: dict[str, _Usage] = {}

    async def check(self, service: str) -> None:
        """Raises QuotaUsedUp where nothing more of a service is to be taken."""
        if self._profiles == self._size == inf:
            return
        now = time.time()
        usage = await self._usage(service, now)
        if usage.profiles >= self._profiles:
            wait = _DAY_SECONDS - int(now) % _DAY_SECONDS
            raise QuotaUsedUp(f"service {service}: {self._profiles:g} profiles have come today", wait)
        if usage.size >= self._size:
            raise QuotaUsedUp(f"service {service}: {self._size / _MEGABYTE:g} MiB are stored", _READ_SECONDS)

    def count(self, service: str, size: int) -> None:
        """A profile of a service was taken, of so many bytes."""
        if service in self._usages:
            self._usages[service].profiles += 1
            self._usages[service].size += size

    async def _usage(self, service: str, now: float) -> _Usage:
        known, day = self._usages.get(service), int(now) // _DAY_SECONDS
        if known is not None and known.day == day and now - known.read < _READ_SECONDS:
            return known
        since = day * _DAY_SECONDS * 10**9
        profiles, size = await asyncio.to_thread(self._inventory.usage, service, since)
        # Before the first look, those that were taken today stand for those that came today.
        come = self._usages[service].profiles if known is not None and known.day == day else profiles
        usage = self._usages[service] = _Usage(day, now, come, size)
        return usage
