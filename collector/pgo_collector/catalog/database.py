"""The catalog's file: opened, with the tables of this version; or cleared, to be filled from the blobs."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import structlog
from sqlalchemy import event

from pgo_collector.catalog.tables import CHANGED_SINCE_4, MADE, METADATA, OUTBOX, VERSION
from pgo_collector.errors import CatalogUnreadable

REINDEX = "stop the server; `pgo-collector reindex` makes it anew from the blobs"
# What SQLite says of a file that isn't as it wrote it.
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_BEFORE = 4
_log = structlog.get_logger()


def open_database(path: Path, damaged: Callable[[str], None]) -> sa.Engine:
    """The database, made if it is missing; its transactions with the option `writes` are for one thread.

    Later, `damaged` is told when SQLite finds that the file isn't as it was written. Raises
    CatalogUnreadable.
    """
    engine = _engine(path)
    try:
        with engine.execution_options(writes=True).begin() as connection:
            _make_tables(connection)
    except sa.exc.DatabaseError as error:
        engine.dispose()
        raise CatalogUnreadable(f"catalog {path}: {error.orig}; {REINDEX}") from error

    def tell(context: sa.engine.ExceptionContext) -> None:
        if is_damage(context.original_exception):
            damaged(str(context.original_exception))

    event.listen(engine, "handle_error", tell)
    return engine


def check_database(connection: sa.Connection) -> None:
    """Raises CatalogUnreadable if the file isn't as SQLite wrote it."""
    path = connection.engine.url.database
    try:
        found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
    except sa.exc.DatabaseError as error:
        found = error.orig
    if found != "ok":
        raise CatalogUnreadable(f"catalog {path}: it is damaged: {found}; {REINDEX}")


def is_damage(error: BaseException | None) -> bool:
    """Whether an error, SQLite's or SQLAlchemy's, says that the file isn't as it was written."""
    if isinstance(error, sa.exc.DBAPIError):
        error = error.orig
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.Error) and code is not None and code & 0xFF in _DAMAGED


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
    if version == _BEFORE:
        for table in CHANGED_SINCE_4:
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
        connection.exec_driver_sql(f"PRAGMA user_version={VERSION}")
    elif version != VERSION:
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
