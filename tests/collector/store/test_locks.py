"""Locks and leases: who waits for another collector, and what is logged of a lease that fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from pgo_collector.catalog.leases import NO_LEASE, Lease
from pgo_collector.errors import LeaseHeld, LeaseLost
from pgo_collector.store import locks
from pgo_collector.store.locks import Locks
from structlog.testing import capture_logs

pytestmark = pytest.mark.any_store


class Catalog:
    """Leases of a catalog that other collectors use: `steps` say what becomes of each request, in order."""

    def __init__(self, **steps: list[Exception | None]) -> None:
        self.steps = steps
        self.asked: list[str] = []
        self.may_take = threading.Event()
        self.may_take.set()

    def _do(self, step: str) -> None:
        self.asked.append(step)
        if (left := self.steps.get(step)) and (error := left.pop(0)) is not None:
            raise error

    def take(self, name: str) -> Lease | None:
        assert name == "shop/cpu"
        self.may_take.wait()
        self._do("take")
        return self if "held" not in self.steps else None

    def renew(self) -> None:
        self._do("renew")

    def release(self) -> None:
        self._do("release")

    is_settled = True
    unsettle, check, check_time = NO_LEASE.unsettle, NO_LEASE.check, NO_LEASE.check_time


def gone() -> Exception:
    return sa.exc.OperationalError("", {}, Exception("the database is gone"))


async def hold(catalog: Catalog, until: Callable[[], bool] = lambda: True) -> None:
    """Hold a lease until something is so."""
    async with asyncio.timeout(30), Locks(catalog).lease("shop/cpu", 0.3):
        while not until():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)


def test_who_waits_too_long_for_another_collector_is_told_to_try_again() -> None:
    catalog = Catalog(held=[])
    with pytest.raises(LeaseHeld, match="another collector holds the lease shop/cpu: try again"):
        asyncio.run(hold(catalog))
    assert catalog.asked.count("take") >= 2


def test_a_lease_is_renewed_until_it_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "RENEWAL_SECONDS", 0.01)
    catalog = Catalog(renew=[None, gone(), LeaseLost("lost")])
    with capture_logs() as logged:
        asyncio.run(hold(catalog, lambda: bool(logged) and logged[-1]["event"] == "lease lost"))
    assert [line["event"] for line in logged] == ["lease not renewed", "lease lost"]
    assert catalog.asked == ["take", *["renew"] * 3, "release"]


def test_a_lease_that_cannot_be_given_back_fails_nothing() -> None:
    with capture_logs() as logged:
        asyncio.run(hold(Catalog(release=[gone()])))
    (line,) = logged
    assert line["event"] == "lease not released"
    assert "the database is gone" in line["reason"]


def test_a_lease_that_comes_after_its_request_was_cancelled_is_given_back() -> None:
    catalog = Catalog()
    catalog.may_take.clear()

    async def run() -> None:
        waiting = asyncio.create_task(hold(catalog))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.sleep(0.05)
        assert not waiting.done()
        catalog.may_take.set()
        await asyncio.wait([waiting])
        assert waiting.cancelled()

    asyncio.run(run())
    assert catalog.asked == ["take", "release"]
