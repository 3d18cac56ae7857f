"""The catalog's database file: opened with this version's tables, checked, or cleared for a rebuild."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import structlog
from sqlalchemy import event

from pgo_collector.catalog.statements import trace_statements
from pgo_collector.catalog.tables import CHANGED_SINCE_4, MADE, METADATA, OUTBOX, VERSION
from pgo_collector.errors import CatalogUnreadable

REINDEX = "stop the server and run `pgo-collector reindex`, which rebuilds it from the blobs"
# The error codes with which SQLite reports a damaged file.
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_BEFORE = 4
_log = structlog.get_logger()


def open_database(path: Path, on_damage: Callable[[str], None]) -> sa.Engine:
    """Open the database; create it if it is missing. Raises CatalogUnreadable.

    Use transactions with the option `writes` from one thread only. If SQLite later finds the file damaged,
    `on_damage` is called with its message.
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
            on_damage(str(context.original_exception))

    event.listen(engine, "handle_error", tell)
    return engine


def check_database(connection: sa.Connection) -> None:
    """Raise CatalogUnreadable if the file isn't as SQLite wrote it."""
    path = connection.engine.url.database
    try:
        found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
    except sa.exc.DatabaseError as error:
        found = error.orig
    if found != "ok":
        raise CatalogUnreadable(f"catalog {path}: it is damaged: {found}; {REINDEX}")


def is_damage(error: BaseException | None) -> bool:
    """Return whether an error of SQLite or SQLAlchemy says that the file is damaged."""
    if isinstance(error, sa.exc.DBAPIError):
        error = error.orig
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.Error) and code is not None and code & 0xFF in _DAMAGED


def clear_database(path: Path) -> None:
    """Drop all tables but the outbox, which can't be rebuilt from the blobs. Raises CatalogUnreadable."""
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
    # Every transaction is ended by the code that begins it, so the pool needn't roll back.
    engine = sa.create_engine(f"sqlite:///{path}", isolation_level=None, pool_reset_on_return=None)
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    trace_statements(engine)
    return engine


def _make_tables(connection: sa.Connection) -> None:
    """Create missing tables; drop those of another version, which `reconcile` fills again."""
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
    """Drop all tables but the outbox; return whether there were any."""
    connection.exec_driver_sql("PRAGMA defer_foreign_keys=ON")
    old = sa.MetaData()
    old.reflect(connection, only=lambda name, _: name != OUTBOX.name)
    old.drop_all(connection)
    return bool(old.tables)


def _set_up(connection: Any, _: object) -> None:
    """Set a connection up. `synchronous=FULL`: a commit is on disk before the client gets its answer."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=30000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    """Begin the transaction now. The driver would do so only at the first change, and reads before that
    change would be outside it.
    """
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
