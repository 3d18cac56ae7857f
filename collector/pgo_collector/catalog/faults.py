"""Faults of the catalog's database, told apart by the errors that SQLAlchemy and the drivers raise."""

from __future__ import annotations

import sqlite3
from enum import Enum

import sqlalchemy as sa

REINDEX = "stop the server and run `pgo-collector reindex`, which rebuilds it from the blobs"
# The error codes with which SQLite reports a damaged file.
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
# Beginnings of PostgreSQL's SQLSTATE codes. A connection that is lost or refused may have none.
_GONE = ("08", "57P")  # connection exceptions; the database shuts down, has crashed, or starts
_SLOW = ("57014", "53300")  # a statement took too long; too many connections
_IN_USE = "55P03"  # the lock on the catalog isn't free


class Fault(Enum):
    """A fault of the database."""

    # Its file isn't as SQLite wrote it.
    DAMAGED = "damaged"
    # It can't be reached, or has closed the connection.
    GONE = "gone"
    # It has no free connection, or takes too long.
    SLOW = "slow"
    # Another process writes this catalog.
    IN_USE = "in use"
    # It refuses a statement, or its disk is full.
    OTHER = "other"


def fault_of(error: BaseException) -> Fault:
    """Return what an error of SQLAlchemy, or one of SQLite's driver, says about the database."""
    if isinstance(error, sa.exc.TimeoutError):  # of the pool
        return Fault.SLOW
    driver_error = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    code = getattr(driver_error, "sqlite_errorcode", None)
    if isinstance(driver_error, sqlite3.Error) and code is not None and code & 0xFF in _DAMAGED:
        return Fault.DAMAGED
    state = getattr(driver_error, "sqlstate", "")
    if state is None:
        return Fault.GONE if isinstance(error, sa.exc.OperationalError) else Fault.OTHER
    if state.startswith(_SLOW):
        return Fault.SLOW
    if state == _IN_USE:
        return Fault.IN_USE
    return Fault.GONE if state.startswith(_GONE) else Fault.OTHER


def may_be_committed(error: BaseException) -> bool:
    """Return whether a transaction that ended with this error may have been committed all the same.

    So it is if the connection was lost before the answer to COMMIT came.
    """
    return fault_of(error) in {Fault.GONE, Fault.SLOW}
