"""Sessions of the pages that somebody ended: a signed session would otherwise hold until its time is over.

It is a table in the catalog's database, so an end holds on all collectors that share it.
"""

from __future__ import annotations

import sqlalchemy as sa

from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.tables import ENDED_SESSIONS


class EndedSessions:
    """The sessions that have ended before their time. Methods block, and each is one transaction.

    Call those that write with `Store.write`, on its thread.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def add(self, signature: str, ends: int) -> None:
        """Note that a session has ended that would end by itself at `ends`, in seconds since 1970."""
        with self._catalog.writing() as connection:
            noted = sa.select(ENDED_SESSIONS).where(ENDED_SESSIONS.c.signature == signature)
            if connection.execute(noted).first() is None:
                connection.execute(sa.insert(ENDED_SESSIONS).values(signature=signature, ends=ends))

    def drop_older(self, than_nanos: int) -> None:
        """Forget those that would have ended by themselves before `than_nanos`, in ns since 1970."""
        with self._catalog.writing() as connection:
            connection.execute(sa.delete(ENDED_SESSIONS).where(ENDED_SESSIONS.c.ends < than_nanos // 10**9))

    def includes(self, signature: str) -> bool:
        """Return whether a session has ended."""
        query = sa.select(ENDED_SESSIONS.c.ends).where(ENDED_SESSIONS.c.signature == signature)
        with self._catalog.reading() as connection:
            return connection.execute(query).first() is not None
