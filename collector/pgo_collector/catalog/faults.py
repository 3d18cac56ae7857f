"""Faults of the catalog's database, told apart by the errors that SQLAlchemy and the drivers raise."""

from __future__ import annotations

import sqlite3
from enum import Enum

import sqlalchemy as sa

REINDEX = "stop the server and run `pgo-collector reindex`, which rebuilds it from the blobs"
# The error codes with which SQLite reports a damaged file.
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
# The class of psycopg's error for a server that doesn't answer a new connection in time, as one that hangs.
# It has no code, nor has the one for a connection that is refused.
_CONNECTS_TOO_LONG = "ConnectionTimeout"


class Fault(Enum):
    """A fault of the database."""

    # Its file isn't as SQLite wrote it.
    DAMAGED = "damaged"
    # It can't be reached, or has closed the connection.
    GONE = "gone"
    # It has no tables, as one that was just set up.
    EMPTY = "empty"
    # It has no free connection, or takes too long.
    SLOW = "slow"
    # Another process writes this catalog.
    IN_USE = "in use"
    # Another collector changes the same: the transaction may be tried again.
    CONFLICT = "conflict"
    # It refuses a statement, or its disk is full.
    OTHER = "other"


# Beginnings of PostgreSQL's SQLSTATE codes. A connection that is lost or refused may have none.
_BY_STATE = {
    # Connection exceptions; the database shuts down, has crashed, or starts; it has ended a transaction in
    # which nothing was done for too long.
    Fault.GONE: ("08", "57P", "25P03"),
    # An undefined table, or no schema.
    Fault.EMPTY: ("42P01", "3F000"),
    # A statement took too long; too many connections.
    Fault.SLOW: ("57014", "53300"),
    # The lock on the catalog isn't free.
    Fault.IN_USE: ("55006",),
    # A deadlock; a row was changed, inserted, deleted or locked by another transaction meanwhile.
    Fault.CONFLICT: ("40001", "40P01", "23505", "23503", "55P03"),
}


def fault_of(error: BaseException) -> Fault:
    """Return what an error of SQLAlchemy, or one of SQLite's driver, says about the database."""
    driver_error = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    if isinstance(error, sa.exc.TimeoutError) or type(driver_error).__name__ == _CONNECTS_TOO_LONG:
        return Fault.SLOW  # the pool has no free connection, or gets no new one
    code = getattr(driver_error, "sqlite_errorcode", None)
    if isinstance(driver_error, sqlite3.Error) and code is not None and code & 0xFF in _DAMAGED:
        return Fault.DAMAGED
    state = getattr(driver_error, "sqlstate", "")
    if state is None:
        return Fault.GONE if isinstance(error, sa.exc.OperationalError) else Fault.OTHER
    return next((fault for fault, begins in _BY_STATE.items() if state.startswith(begins)), Fault.OTHER)


def may_be_committed(error: BaseException) -> bool:
    """Return whether a transaction that ended with this error may have been committed all the same.

    So it is if the connection was lost before the answer to COMMIT came.
    """
    return fault_of(error) in {Fault.GONE, Fault.SLOW}
