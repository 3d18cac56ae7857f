"""The catalog's file: opened, with the tables of this version; or cleared, to be filled from the blobs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import structlog
from sqlalchemy import event

from pgo_collector.errors import CatalogUnreadable
from pgo_collector.store.tables import MADE, METADATA, OUTBOX, VERSION

_log = structlog.get_logger()


def open_database(path: Path) -> sa.Engine:
    """The database, made if it is missing; its transactions with the option `writes` are for one thread.

    Raises CatalogUnreadable.
    """
    engine = _engine(path)
    try:
        with engine.execution_options(writes=True).begin() as connection:
            _make_tables(connection)
    except sa.exc.DatabaseError as error:
        engine.dispose()
        raise CatalogUnreadable(
            f"catalog {path}: {error.orig}; `pgo-collector reindex` makes it anew from the blobs"
        ) from error
    return engine


def clear_database(path: Path) -> None:
    """Drops all but the events that wait, which nothing else tells. Raises CatalogUnreadable."""
    engine = _engine(path)
    try:
        with engine.execution_options(writes=True).begin() as connection:
            found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
            if found != "ok":
                raise CatalogUnreadable(f"catalog {path}: {found}")
            _drop_tables(connection)
    except sa.exc.DatabaseError as error:
        raise CatalogUnreadable(f"catalog {path}: {error.orig}") from error
    finally:
        engine.dispose()


def _engine(path: Path) -> sa.Engine:
    # Whoever begins a transaction ends it; the pool needn't see to it.
    engine = sa.create_engine(f"sqlite:///{path}", isolation_level=None, pool_reset_on_return=None)
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    return engine


def _make_tables(connection: sa.Connection) -> None:
    """Makes what is missing; what another version made goes, and `reconcile` fills it again."""
    version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
    if version != VERSION:
        if _drop_tables(connection):
            _log.warning("the catalog is another version's, made anew from the blobs")
        connection.exec_driver_sql(f"PRAGMA user_version={VERSION}")
    METADATA.create_all(connection)
    if connection.execute(sa.select(MADE)).first() is None:
        connection.execute(sa.insert(MADE).values(at_nanos=time.time_ns()))


def _drop_tables(connection: sa.Connection) -> bool:
    """Drops all tables but the outbox; whether there were any."""
    connection.exec_driver_sql("PRAGMA defer_foreign_keys=ON")
    old = sa.MetaData()
    old.reflect(connection, only=lambda name, _: name != OUTBOX.name)
    old.drop_all(connection)
    return bool(old.tables)


def _set_up(connection: Any, _: object) -> None:
    """FULL: a commit is on disk before the client hears of it."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=30000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    """The driver would begin only at the first change; this way what is read before belongs to it too."""
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
