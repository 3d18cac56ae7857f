"""Locks: what changes the blobs of a service and type is done one after another, by one collector a time."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

import structlog
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.catalog.leases import LEASE_SECONDS, RENEWAL_SECONDS, Lease, Leases
from pgo_collector.errors import LeaseHeld, LeaseLost

# How long a request waits for another collector's lease, and how long it takes until it asks again.
_PATIENCE_SECONDS = 30.0
_PAUSE_SECONDS = 0.2
# How long to wait for the lease of one that may have died, as this collector did if it crashed and starts.
TAKEOVER_SECONDS = LEASE_SECONDS + RENEWAL_SECONDS
_log = structlog.get_logger()


class Locks:
    """A lock for each service and type in this process, and the leases that keep other collectors apart."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def of(self, service: str, type_: str) -> asyncio.Lock:
        """Return the lock of a service and type in this process."""
        return self._locks.setdefault((service, type_), asyncio.Lock())

    @asynccontextmanager
    async def changing(self, service: str, type_: str) -> AsyncIterator[Lease]:
        """Hold the lock and the lease of a service and type. Raises LeaseHeld and SQLAlchemyError."""
        async with self.of(service, type_), self.lease(f"{service}/{type_}", _PATIENCE_SECONDS) as lease:
            yield lease

    @asynccontextmanager
    async def lease(self, name: str, patience: float = 0.0) -> AsyncIterator[Lease]:
        """Hold a lease, and renew it until the block ends.

        Raises LeaseHeld if another collector still has it after `patience` in seconds, and SQLAlchemyError.
        """
        lease = await self._taken(name, patience)
        renewing = asyncio.create_task(_renew(lease))
        try:
            yield lease
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
            await asyncio.to_thread(_release, lease)

    async def _taken(self, name: str, patience: float) -> Lease:
        deadline = time.monotonic() + patience
        while (lease := await self._take(name)) is None:
            if time.monotonic() >= deadline:
                raise LeaseHeld(f"another collector holds the lease {name}: try again")
            await asyncio.sleep(_PAUSE_SECONDS * (0.5 + random.random()))  # noqa: S311 - spreads load
        return lease

    async def _take(self, name: str) -> Lease | None:
        """Take a lease; give it back if this is cancelled meanwhile."""
        taking = asyncio.create_task(asyncio.to_thread(self._leases.take, name))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            await asyncio.wait([taking])
            if not taking.cancelled() and not taking.exception() and (lease := taking.result()) is not None:
                await asyncio.to_thread(_release, lease)
            raise


def _release(lease: Lease) -> None:
    try:
        lease.release()
    except SQLAlchemyError as error:
        _log.warning("lease not released", reason=str(error))


async def _renew(lease: Lease) -> None:
    """Renew a lease until it is lost; who holds it notices with the next transaction."""
    while True:
        await asyncio.sleep(RENEWAL_SECONDS)
        try:
            await asyncio.to_thread(lease.renew)
        except LeaseLost as error:
            _log.error("lease lost", reason=str(error))
            return
        except SQLAlchemyError as error:
            _log.warning("lease not renewed", reason=str(error))
