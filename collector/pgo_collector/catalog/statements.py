"""Statements: those that the driver runs as they are, and all of them as steps of traces.

A step has the statement's text, with placeholders where values go. Values aren't recorded.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import sqlite

from pgo_collector.traces.spans import place

_LONGEST_TEXT = 1000
_DIALECT = sqlite.dialect(paramstyle="named")

Row = tuple[Any, ...]
Values = Mapping[str, int | str]


class Prepared:
    """A statement that is compiled once, and run by the driver: for the statements of a submit.

    What SQLAlchemy does around each run takes several times as long as their runs. The driver raises its own
    errors, see `driver_errors`; and it returns a boolean as 0 or 1.
    """

    def __init__(self, statement: sa.Select[Any] | sa.Insert, *columns: str) -> None:
        """Compile a statement; an insert without values has them for these columns."""
        self._text = str(statement.compile(dialect=_DIALECT, column_keys=columns or None))

    def rows(self, connection: sa.Connection, values: Values) -> list[Row]:
        """Run the statement and return all its rows."""
        started = time.monotonic_ns()
        found: list[Row] = _driver(connection).execute(self._text, values).fetchall()
        _trace(self._text, started)
        return found

    def each(self, connection: sa.Connection, values: Sequence[Values]) -> None:
        """Run the statement with each of these values."""
        started = time.monotonic_ns()
        _driver(connection).executemany(self._text, values)
        _trace(self._text, started)


def _driver(connection: sa.Connection) -> Any:
    return connection.connection.driver_connection


@contextmanager
def driver_errors(connection: sa.Connection) -> Iterator[None]:
    """Raise SQLAlchemy's error for one that the driver raises in a prepared statement."""
    kind = connection.dialect.loaded_dbapi.Error
    try:
        yield
    except kind as error:
        raise sa.exc.DBAPIError.instance(None, None, error, kind) from error


def trace_statements(engine: sa.Engine) -> None:
    """Record the statements of an engine, and the commits of its transactions, where a request is traced."""
    event.listen(engine, "before_cursor_execute", _note_start)
    event.listen(engine, "after_cursor_execute", _add)


def _note_start(connection: sa.Connection, *_: Any) -> None:
    if place() is not None:
        connection.info["started"] = time.monotonic_ns()


def _add(connection: sa.Connection, _cursor: Any, statement: str, *_: Any) -> None:
    started = connection.info.pop("started", None)
    if started is not None:
        _trace(statement, started)


def _trace(statement: str, started: int) -> None:
    if (there := place()) is not None:
        verb, attributes = _named(statement)
        there.add("catalog", verb, started, None, attributes)


@lru_cache(64)
def _named(statement: str) -> tuple[str, Values]:
    """Return the verb of a statement, and as an attribute its text on one line."""
    words = statement.split()
    return words[0], {"db.query.text": " ".join(words)[:_LONGEST_TEXT]}
