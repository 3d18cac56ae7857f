"""The clock, as far as retention trusts it: by a clock that jumped ahead, all profiles are old at once."""

from __future__ import annotations

import time

import sqlalchemy as sa

from pgo_collector.catalog.tables import BLOBS, RETENTION
from pgo_collector.model.times import DAY_NANOS
from pgo_collector.store.store import Store

# A clock that is further ahead has moved.
_MOST_AHEAD_NANOS = DAY_NANOS


class TrustedClock:
    """Compares the clock with what has passed since retention last ran by a clock that it trusted.

    In one process, that is what the kernel has counted. After a restart, nobody knows how long the collector
    was off: the time of the last run in the catalog tells, or, if there was none, that of the newest profile.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # The clock and the kernel's count at the last run, in ns.
        self._last: tuple[int, int] | None = None

    def days_ahead(self, now_nanos: int) -> float:
        """Return by how many days the clock is ahead; 0 if that is little enough. Blocks."""
        if self._last is not None:
            before, counted = self._last
            ahead = now_nanos - before - (_counted() - counted)
        else:
            ahead = now_nanos - self._known(now_nanos)
        return ahead / DAY_NANOS if ahead > _MOST_AHEAD_NANOS else 0.0

    def _known(self, now_nanos: int) -> int:
        """Return a time that has passed for sure, in ns since 1970; now if none is known."""
        newest = sa.select(sa.func.max(BLOBS.c.end_nanos)).where(BLOBS.c.live)
        with self._store.catalog.reading() as connection:
            for query in (sa.select(RETENTION.c.at_nanos), newest):
                if (found := connection.execute(query).scalar()) is not None:
                    return int(found)
        return now_nanos

    async def trust(self, now_nanos: int) -> None:
        """Note that retention has run by this clock. Raises OSError or SQLAlchemyError."""
        await self._store.write(self._note, now_nanos)
        self._last = now_nanos, _counted()

    def _note(self, now_nanos: int) -> None:
        with self._store.catalog.writing() as connection:
            connection.execute(sa.delete(RETENTION))
            connection.execute(sa.insert(RETENTION).values(at_nanos=now_nanos))


def _counted() -> int:
    """Return the time since the machine started, in ns, also that in which it slept."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
