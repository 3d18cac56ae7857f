"""The outbox: events that wait to be delivered. They are in the catalog's database, where `Catalog.add` puts
them in the transaction that counts the profile, and so there is one if, and only if, the profile is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.tables import OUTBOX


class Waiting(NamedTuple):
    """An event that waits, and how often it was tried in vain."""

    number: int
    id: str
    body: str
    attempts: int


class Backlog(NamedTuple):
    """How many events wait, and since when the oldest, in ns since 1970; None if there is none."""

    events: int
    oldest_nanos: int | None


class Failed(NamedTuple):
    """An event that was tried in vain, and when it is due again, in ns since 1970."""

    number: int
    due_nanos: int


class Outbox:
    """Methods block, and each is one transaction. Those that write are for the thread of `Store.write`."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def backlog(self) -> Backlog:
        """What waits."""
        query = sa.select(sa.func.count(), sa.func.min(OUTBOX.c.created_nanos))
        with self._catalog.reading() as connection:
            return Backlog(*connection.execute(query).one())

    def due(self, now_nanos: int, most: int) -> list[Waiting]:
        """The events that are to be tried now, the longest due first."""
        columns = (OUTBOX.c.number, OUTBOX.c.event, OUTBOX.c.body, OUTBOX.c.attempts)
        query = (
            sa.select(*columns)
            .where(OUTBOX.c.due_nanos <= now_nanos)
            .order_by(OUTBOX.c.due_nanos, OUTBOX.c.number)
            .limit(most)
        )
        with self._catalog.reading() as connection:
            return [Waiting(*row) for row in connection.execute(query)]

    def settle(self, delivered: Sequence[int], failed: Sequence[Failed]) -> None:
        """Drops events that were delivered, by number, and puts off others."""
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
        """Drops events that were made before then; how many."""
        with self._catalog.writing() as connection:
            return connection.execute(sa.delete(OUTBOX).where(OUTBOX.c.created_nanos < than_nanos)).rowcount

    def drop_all_but(self, most: int) -> int:
        """Drops all but the newest events; how many."""
        newest = sa.select(OUTBOX.c.number).order_by(OUTBOX.c.number.desc()).limit(most)
        with self._catalog.writing() as connection:
            return connection.execute(sa.delete(OUTBOX).where(OUTBOX.c.number.not_in(newest))).rowcount
