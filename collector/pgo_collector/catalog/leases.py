"""Leases: rights to do something that only one of several collectors may do at a time.

A combine of a service's profiles is an example. The collector that holds the lease renews it all the time;
when it dies, the lease ends within seconds, and another collector takes it. A collector that was only paused
doesn't notice at once: so every transaction that a lease protects checks it, and fails if another has taken
it. No check protects objects in the storage: a paused collector may have sent a request that deletes one, and
a request that had no answer in time may still arrive. So a lease is unsettled for a while, in which such a
request has arrived, if its last holder didn't give it back, or has had such a request.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import sqlalchemy as sa

from pgo_collector.catalog.faults import Fault, fault_of
from pgo_collector.catalog.tables import LEASES
from pgo_collector.errors import LeaseLost
from pgo_collector.model.times import boot_seconds

# A lease ends so long after it was renewed, and is renewed so often.
LEASE_SECONDS = 10.0
RENEWAL_SECONDS = 3.0
# How long a lease is unsettled. A holder checks its clock before each request that deletes, so this is for a
# request that has begun before a pause, or that the network holds up.
_SETTLING_SECONDS = 120.0
Writing = Callable[[], AbstractContextManager[sa.Connection]]

_NOW = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()) * 1000, sa.BigInteger)


class Lease(Protocol):
    """A lease that is held. Methods that take no connection may block; they raise SQLAlchemyError."""

    @property
    def is_settled(self) -> bool:
        """True if no earlier request that changes or deletes an object can still be on its way."""

    def unsettle(self) -> None:
        """Note that such a request has failed, and may arrive all the same."""

    def check(self, connection: sa.Connection) -> None:
        """Raise LeaseLost if another has it; until this transaction ends, no other can take it."""

    def check_time(self) -> None:
        """Raise LeaseLost if it wasn't renewed in time, by this machine's clock."""

    def renew(self) -> None:
        """Have it last longer. Raises LeaseLost."""

    def release(self) -> None:
        """Give it back, unless it is lost."""


class Leases(Protocol):
    """The leases of a catalog."""

    def take(self, name: str) -> Lease | None:
        """Take a lease; None if another collector holds it. Blocks, and raises SQLAlchemyError."""


class _NoLease:
    """The lease of a collector that has its catalog to itself."""

    @property
    def is_settled(self) -> bool:
        return True

    def unsettle(self) -> None:
        """Do nothing."""

    def check(self, connection: sa.Connection) -> None:
        """Do nothing."""

    def check_time(self) -> None:
        """Do nothing."""

    def renew(self) -> None:
        """Do nothing."""

    def release(self) -> None:
        """Do nothing."""


NO_LEASE: Lease = _NoLease()


@dataclass(frozen=True)
class _OwnLease(_NoLease):
    """The same, but the collector itself may unsettle it.

    `settled_after` has the times after which such leases are settled, and `first` is that of all others.
    """

    name: str
    settled_after: dict[str, float]
    first: float

    @property
    def is_settled(self) -> bool:
        return boot_seconds() >= self.settled_after.get(self.name, self.first)

    def unsettle(self) -> None:
        self.settled_after[self.name] = boot_seconds() + _SETTLING_SECONDS


class NoLeases:
    """The leases of a catalog that no other collector uses: each is free when it is asked for.

    If `begins_settled` is false, each is unsettled at first: an earlier process may have sent requests to a
    bucket, and nothing says which.
    """

    def __init__(self, *, begins_settled: bool = True) -> None:
        self._first = 0.0 if begins_settled else boot_seconds() + _SETTLING_SECONDS
        self._settled_after: dict[str, float] = {}

    def take(self, name: str) -> Lease:
        """Return a lease that is never lost."""
        return _OwnLease(name, self._settled_after, self._first)


class SharedLeases:
    """The leases in a PostgreSQL that several collectors use. `writing` begins a transaction."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def take(self, name: str) -> Lease | None:
        """Take a lease that nobody has, or that has ended."""
        from sqlalchemy.dialects.postgresql import insert  # noqa: PLC0415 - SQLite's starts do without

        began, token = boot_seconds(), secrets.randbits(62) | 1
        new = insert(LEASES).values(name=name, token=token, ends_ms=_later(LEASE_SECONDS), deletes_ms=0)
        taken_over = sa.case((LEASES.c.token != 0, _later(_SETTLING_SECONDS)), else_=LEASES.c.deletes_ms)
        query = new.on_conflict_do_update(
            index_elements=["name"],
            set_={"token": new.excluded.token, "ends_ms": new.excluded.ends_ms, "deletes_ms": taken_over},
            where=LEASES.c.ends_ms < _NOW,
        ).returning(LEASES.c.deletes_ms - _NOW)
        try:
            with self._writing() as connection:
                row = connection.execute(query).one_or_none()
        except sa.exc.SQLAlchemyError as error:
            if fault_of(error) is Fault.CONFLICT:  # a transaction checks it just now
                return None
            raise
        if row is None:
            return None
        return _SharedLease(self._writing, name, token, began + LEASE_SECONDS, boot_seconds() + row[0] / 1000)


@dataclass(slots=True)
class _SharedLease:
    """A lease in LEASES; it is valid `until` a time, and settled `after` a time.

    Both are in seconds of the clock that goes on while the machine sleeps.
    """

    writing: Writing
    name: str
    token: int
    until: float
    after: float

    @property
    def is_settled(self) -> bool:
        return boot_seconds() >= self.after

    def unsettle(self) -> None:
        self.after = boot_seconds() + _SETTLING_SECONDS

    @property
    def _row(self) -> sa.ColumnElement[bool]:
        return (LEASES.c.name == self.name) & (LEASES.c.token == self.token)

    def check(self, connection: sa.Connection) -> None:
        # Locked, so that a collector that takes the lease waits for this transaction.
        if not connection.execute(sa.select(LEASES.c.name).where(self._row).with_for_update(read=True)).all():
            raise self._lost()

    def check_time(self) -> None:
        if boot_seconds() > self.until:
            raise self._lost()

    def renew(self) -> None:
        """Have it last longer. If it has ended and nobody has taken it, it is held again."""
        began = boot_seconds()
        later = sa.update(LEASES).where(self._row).values(ends_ms=_later(LEASE_SECONDS))
        with self.writing() as connection:
            is_held = connection.execute(later).rowcount == 1
        if not is_held:
            raise self._lost()
        self.until = began + LEASE_SECONDS

    def release(self) -> None:
        """Delete its row, unless it has to say that the lease isn't settled yet."""
        unsettled_seconds = self.after - boot_seconds()
        with self.writing() as connection:
            if unsettled_seconds <= 0:
                connection.execute(sa.delete(LEASES).where(self._row))
            else:
                free = {"token": 0, "ends_ms": 0, "deletes_ms": _later(unsettled_seconds)}
                connection.execute(sa.update(LEASES).where(self._row).values(free))

    def _lost(self) -> LeaseLost:
        return LeaseLost(f"this collector has lost the lease {self.name}, another one may go on: try again")


def _later(seconds: float) -> sa.ColumnElement[int]:
    return _NOW + int(seconds * 1000)
