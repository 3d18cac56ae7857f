"""The outbox: events that wait to be delivered.

It is a table in the catalog's database. `Catalog.add` writes the event in the transaction that counts the
profile, so there is an event if, and only if, the profile is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.tables import OUTBOX


class WaitingEvent(NamedTuple):
    """An event that waits; `attempts` is how often its delivery has failed."""

    number: int
    id: str
    body: str
    attempts: int


class Backlog(NamedTuple):
    """The number of waiting events, and when the oldest was made, in ns since 1970; None if there is none."""

    events: int
    oldest_nanos: int | None


class FailedEvent(NamedTuple):
    """An event whose delivery has failed, and when it is due again, in ns since 1970."""

    number: int
    due_nanos: int


class Outbox:
    """The waiting events. Methods block, and each is one transaction.

    Call those that write with `Store.write`, on its thread.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def backlog(self) -> Backlog:
        """Return how much waits."""
        query = sa.select(sa.func.count(), sa.func.min(OUTBOX.c.created_nanos))
        with self._catalog.reading() as connection:
            return Backlog(*connection.execute(query).one())

    def due(self, now_nanos: int, limit: int) -> list[WaitingEvent]:
        """Return up to `limit` events that are due at `now_nanos`, the longest due first."""
        columns = (OUTBOX.c.number, OUTBOX.c.event, OUTBOX.c.body, OUTBOX.c.attempts)
        query = (
            sa.select(*columns)
            .where(OUTBOX.c.due_nanos <= now_nanos)
            .order_by(OUTBOX.c.due_nanos, OUTBOX.c.number)
            .limit(limit)
        )
        with self._catalog.reading() as connection:
            return [WaitingEvent(*row) for row in connection.execute(query)]

    def record_attempts(self, delivered: Sequence[int], failed: Sequence[FailedEvent]) -> None:
        """Drop the delivered events, given by number, and postpone the failed ones."""
        number: sa.BindParameter[int] = sa.bindparam("_number")
        with self._catalog.writing() as connection:
            if delivered:
                gone = [{"_number": each} for each in delivered]
                connection.execute(sa.delete(OUTBOX).where(OUTBOX.c.number == number), gone)
            if failed:
                later = (
                    sa.update(OUTBOX)
                    .where(OUTBOX.c.number == number)
                    .values(attempts=OUTBOX.c.attempts + 1, due_nanos=sa.bindparam("_due"))
                )
                rows = [{"_number": each.number, "_due": each.due_nanos} for each in failed]
                connection.execute(later, rows)

    def drop_older(self, than_nanos: int) -> int:
        """Drop the events that were made before `than_nanos`; return how many."""
        with self._catalog.writing() as connection:
            return connection.execute(sa.delete(OUTBOX).where(OUTBOX.c.created_nanos < than_nanos)).rowcount

    def drop_all_but(self, limit: int) -> int:
        """Drop all but the newest `limit` events; return how many."""
        newest = sa.select(OUTBOX.c.number).order_by(OUTBOX.c.number.desc()).limit(limit)
        with self._catalog.writing() as connection:
            return connection.execute(sa.delete(OUTBOX).where(OUTBOX.c.number.not_in(newest))).rowcount
