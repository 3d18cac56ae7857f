"""Leases of a collector that has its catalog to itself."""

from __future__ import annotations

import pytest
from pgo_collector.catalog import leases
from pgo_collector.catalog.leases import NoLeases


class Clock:
    """A clock in seconds that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(leases, "boot_seconds", lambda: self.now)


def is_settled(own: NoLeases, name: str) -> bool:
    """Return whether a lease is settled that is taken now."""
    return own.take(name).is_settled


def test_a_failed_request_unsettles_a_lease_for_two_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, own = Clock(monkeypatch), NoLeases()
    assert is_settled(own, "shop/cpu")
    own.take("shop/cpu").unsettle()
    assert not is_settled(own, "shop/cpu")
    assert is_settled(own, "cart/cpu")
    clock.now += 119
    assert not is_settled(own, "shop/cpu")
    clock.now += 2
    assert is_settled(own, "shop/cpu")


def test_every_lease_over_a_bucket_begins_unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, own = Clock(monkeypatch), NoLeases(begins_settled=False)
    assert not is_settled(own, "shop/cpu")
    clock.now += 119
    assert not is_settled(own, "cart/cpu")
    clock.now += 2
    assert all(is_settled(own, name) for name in ("shop/cpu", "cart/cpu", "another/cpu"))
