"""Changes: a version of each service's and type's blobs, so that what was read before is known to be old."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import sqlalchemy as sa

from pgo_collector.catalog.statements import PreparedInsert, PreparedQuery, Values
from pgo_collector.catalog.tables import CHANGES

# A service and type.
Owner = tuple[str, str]

_DAY_SECONDS = 86_400


class Changes(Protocol):
    """Counts the changes of the blobs of each service and type, and the profiles that come."""

    def version(self, service: str, type_: str) -> Hashable:
        """Return the version of a service's and type's blobs: another one after each change of them.

        Ask for it before you read the blobs: if they change meanwhile, what was read is of an old version.
        """

    def note(self, connection: sa.Connection, changed: Collection[Owner], new: Mapping[Owner, int]) -> None:
        """Note a change at the end of its transaction, and how many profiles are new of each."""

    def noted(self, changed: Collection[Owner]) -> None:
        """Note that the transaction of a change has ended, whether or not it was committed."""

    def submitted(self, service: str, day: int) -> int | None:
        """Return how many profiles of a service were stored on a day, in days since 1970; None if unknown."""

    def drop_old(self, connection: sa.Connection) -> None:
        """Drop what collectors noted that have changed nothing for a day."""


class OwnChanges:
    """The changes of a process that has its catalog to itself, in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._versions: Counter[Owner] = Counter()

    def version(self, service: str, type_: str) -> int:
        """Return how often the blobs have changed."""
        return self._versions[service, type_]

    def note(self, connection: sa.Connection, changed: Collection[Owner], new: Mapping[Owner, int]) -> None:
        """Do nothing: see `noted`."""

    def noted(self, changed: Collection[Owner]) -> None:
        """Count a change."""
        with self._lock:
            for owner in changed:
                self._versions[owner] += 1

    def submitted(self, service: str, day: int) -> None:
        """Return None."""

    def drop_old(self, connection: sa.Connection) -> None:
        """Do nothing."""


def _count(insert: Any) -> Any:
    new = insert.excluded
    before = sa.case((CHANGES.c.day == new.day, CHANGES.c.submitted), else_=sa.text("0"))
    return insert.on_conflict_do_update(
        index_elements=("service", "type", "collector"),
        set_={
            "version": CHANGES.c.version + sa.text("1"),
            "day": new.day,
            "submitted": before + new.submitted,
        },
    )


_COUNT = PreparedInsert(CHANGES, *CHANGES.c.keys(), then=_count)
_VERSIONS = PreparedQuery(
    sa.select(CHANGES.c.collector, CHANGES.c.version).where(
        CHANGES.c.service == sa.bindparam("service"), CHANGES.c.type == sa.bindparam("type")
    )
)


class SharedChanges:
    """The changes of several collectors, in CHANGES. `reading` begins a transaction that reads.

    Each collector has rows of its own there, so that none waits for another's transaction. All of them
    together are the version.
    """

    def __init__(self, reading: Callable[[], AbstractContextManager[sa.Connection]]) -> None:
        self._reading = reading
        self._collector = secrets.randbits(62)

    def version(self, service: str, type_: str) -> frozenset[tuple[int, int]]:
        """Return the versions of all collectors."""
        with self._reading() as connection:
            rows = _VERSIONS.rows(connection, {"service": service, "type": type_})
        return frozenset((collector, version) for collector, version in rows)

    def note(self, connection: sa.Connection, changed: Collection[Owner], new: Mapping[Owner, int]) -> None:
        """Raise this collector's versions."""
        now = time.time_ns()
        day = now // (_DAY_SECONDS * 10**9)
        rows: list[Values] = [
            {
                "service": service,
                "type": type_,
                "collector": self._collector,
                "version": now,  # no version comes twice, even if a row was dropped meanwhile
                "day": day,
                "submitted": new.get((service, type_), 0),
            }
            for service, type_ in sorted(changed)
        ]
        if rows:
            _COUNT.each(connection, rows)

    def noted(self, changed: Collection[Owner]) -> None:
        """Do nothing: see `note`."""

    def submitted(self, service: str, day: int) -> int:
        """Return the sum of what all collectors have stored."""
        total = sa.func.coalesce(sa.func.sum(CHANGES.c.submitted), 0)
        query = sa.select(total).where(CHANGES.c.service == service, CHANGES.c.day == day)
        with self._reading() as connection:
            return int(connection.execute(query).scalar_one())

    def drop_old(self, connection: sa.Connection) -> None:
        """Drop the rows of collectors that have changed nothing for a day, for good or for a while.

        This is a change of its own, or the version could be one that it was before.
        """
        yesterday = time.time_ns() // (_DAY_SECONDS * 10**9) - 1
        old = sa.delete(CHANGES).where(CHANGES.c.day < yesterday).returning(CHANGES.c.service, CHANGES.c.type)
        self.note(connection, {(service, type_) for service, type_ in connection.execute(old)}, {})
