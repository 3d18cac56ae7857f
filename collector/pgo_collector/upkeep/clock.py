"""The clock, as far as deletions by age trust it: by a clock that jumped ahead, everything is old at once."""

from __future__ import annotations

import time
from math import inf

import sqlalchemy as sa

from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.tables import BLOBS, RETENTION
from pgo_collector.model.times import DAY_NANOS
from pgo_collector.store.store import Store

# A clock that is further ahead has moved, and a profile that is closer was taken just now.
_MOST_AHEAD_NANOS = DAY_NANOS


class TrustedClock:
    """Compares the clock with what has passed since upkeep last trusted it.

    In one process, that is what the kernel has counted. After a restart, nobody knows how long the collector
    was off: the time of the last run in the catalog tells, or, if there was none, that of the newest profile.
    """

    def __init__(self) -> None:
        # The clock and the kernel's count when it was last trusted, in ns.
        self._last: tuple[int, int] | None = None

    def days_ahead(self, now_nanos: int) -> float:
        """Return by how many days the clock is ahead; 0 if that is little enough, inf before `read`."""
        if self._last is None:
            return inf
        before, counted = self._last
        ahead = now_nanos - before - (_counted() - counted)
        return ahead / DAY_NANOS if ahead > _MOST_AHEAD_NANOS else 0.0

    def is_trusted(self, now_nanos: int) -> bool:
        """Return whether things may be deleted because they are old by this clock."""
        return not self.days_ahead(now_nanos)

    def read(self, catalog: Catalog) -> None:
        """Read when the clock was last trusted, by any collector. Blocks; raises SQLAlchemyError."""
        newest = sa.select(sa.func.max(BLOBS.c.end_nanos)).where(BLOBS.c.live)
        with catalog.reading() as connection:
            times = (
                connection.execute(query).scalar() for query in (sa.select(RETENTION.c.at_nanos), newest)
            )
            known = next((int(found) for found in times if found is not None), time.time_ns())
        if self._last is None or self._last[0] != known:
            self._last = known, _counted()

    def is_confirmed(self, catalog: Catalog, now_nanos: int) -> bool:
        """Return whether a stored profile is from within a day of now, by its sender's clock. Blocks."""
        around = BLOBS.c.end_nanos.between(now_nanos - _MOST_AHEAD_NANOS, now_nanos + _MOST_AHEAD_NANOS)
        with catalog.reading() as connection:
            return (
                connection.execute(sa.select(BLOBS.c.id).where(BLOBS.c.live, around).limit(1)).first()
                is not None
            )

    async def trust(self, store: Store, now_nanos: int) -> None:
        """Note that this clock is right. Raises OSError or SQLAlchemyError."""

        def note_clock() -> None:
            with store.catalog.writing() as connection:
                connection.execute(sa.delete(RETENTION))
                connection.execute(sa.insert(RETENTION).values(at_nanos=now_nanos))

        await store.write(note_clock)
        self._last = now_nanos, _counted()


def _counted() -> int:
    """Return the time since the machine started, in ns, also that in which it slept."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
