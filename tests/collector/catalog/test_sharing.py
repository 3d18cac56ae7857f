"""Leases and changes of collectors that share a catalog: in an SQLite here, whose clock the tests set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from pgo_collector.catalog import leases
from pgo_collector.catalog.leases import SharedLeases
from pgo_collector.catalog.postgresql import SharedChanges
from pgo_collector.catalog.tables import CHANGES, LEASES
from pgo_collector.errors import LeaseLost

pytestmark = pytest.mark.any_store

DAY = 86_400


class Shared:
    """A database with the tables that collectors share, and a clock for it and for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_800_000_000.0
        self._engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
        sa.event.listen(self._engine, "connect", self._add_clock)
        for table in (LEASES, CHANGES):
            table.create(self._engine)
        monkeypatch.setattr(leases, "boot_seconds", lambda: self.now)
        monkeypatch.setattr("time.time_ns", lambda: int(self.now * 10**9))

    def _add_clock(self, connection: Any, _: object) -> None:
        connection.create_function(
            "clock_timestamp", 0, lambda: datetime.fromtimestamp(self.now, UTC).strftime("%Y-%m-%d %H:%M:%S")
        )

    def begin(self) -> AbstractContextManager[sa.Connection]:
        return self._engine.begin()

    def close(self) -> None:
        self._engine.dispose()


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shared]:
    with closing(Shared(monkeypatch)) as shared:
        yield shared


@pytest.fixture
def two(shared: Shared) -> list[SharedLeases]:
    """The leases as two collectors have them."""
    return [SharedLeases(shared.begin) for _ in range(2)]


def test_a_lease_is_of_one_collector_until_it_is_given_back(two: list[SharedLeases], shared: Shared) -> None:
    held = two[0].take("shop/cpu")
    assert held is not None
    assert held.is_settled
    assert two[1].take("shop/cpu") is None
    assert two[1].take("cart/cpu") is not None
    shared.now += 6
    held.renew()
    shared.now += 6
    held.check_time()
    assert two[1].take("shop/cpu") is None
    with shared.begin() as connection:
        held.check(connection)
    held.release()
    taken = two[1].take("shop/cpu")
    assert taken is not None
    assert taken.is_settled


def test_a_lease_that_ended_is_lost_once_another_has_taken_it(
    two: list[SharedLeases], shared: Shared
) -> None:
    paused, late = two[0].take("shop/cpu"), two[0].take("cart/cpu")
    assert paused is not None
    assert late is not None
    shared.now += 11
    for lease in (paused, late):
        with pytest.raises(LeaseLost, match="try again"):
            lease.check_time()
    late.renew()  # nobody has taken it
    late.check_time()
    taken = two[1].take("shop/cpu")
    assert taken is not None
    with pytest.raises(LeaseLost, match="shop/cpu"):
        paused.renew()
    with shared.begin() as connection, pytest.raises(LeaseLost):
        paused.check(connection)
    paused.release()
    with shared.begin() as connection:
        taken.check(connection)
    # A request of the collector that was paused may still arrive.
    assert not taken.is_settled
    shared.now += 121
    assert taken.is_settled


def test_a_failed_request_unsettles_a_lease_for_the_next_collector_too(
    two: list[SharedLeases], shared: Shared
) -> None:
    held = two[0].take("shop/cpu")
    assert held is not None
    held.unsettle()
    assert not held.is_settled
    held.release()
    taken = two[1].take("shop/cpu")
    assert taken is not None
    assert not taken.is_settled
    shared.now += 121
    assert taken.is_settled


def test_each_sees_the_changes_of_all(shared: Shared) -> None:
    one, other = SharedChanges(shared.begin), SharedChanges(shared.begin)
    day = int(shared.now) // DAY
    versions = [one.version("shop", "cpu")]
    for changes, count in ((one, 3), (other, 2), (one, 1)):
        shared.now += 1
        with shared.begin() as connection:
            changes.note(connection, {("shop", "cpu")}, {("shop", "cpu"): count})
        changes.noted({("shop", "cpu")})
        assert one.version("shop", "cpu") == other.version("shop", "cpu")
        versions.append(one.version("shop", "cpu"))
    assert len({*versions}) == 4
    assert one.submitted("shop", day) == other.submitted("shop", day) == 6
    assert one.submitted("shop", day - 1) == one.submitted("cart", day) == 0
    assert one.version("cart", "cpu") == frozenset()


def test_what_a_collector_noted_days_ago_is_dropped_which_is_a_change(shared: Shared) -> None:
    gone, here = SharedChanges(shared.begin), SharedChanges(shared.begin)
    with shared.begin() as connection:
        gone.note(connection, {("shop", "cpu")}, {})
    before = here.version("shop", "cpu")
    shared.now += 3 * DAY
    with shared.begin() as connection:
        here.drop_old(connection)
    after = here.version("shop", "cpu")
    assert len(before) == len(after) == 1
    assert before != after
