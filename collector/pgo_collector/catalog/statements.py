"""Statements: those that the driver runs as they are, what each dialect says in its own way, and all as steps
of traces.

A step has the statement's text, with placeholders where values go. Values aren't recorded.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.operators import OperatorType

from pgo_collector.traces.spans import place

_LONGEST_TEXT = 1000
# How each driver takes values by name.
_PARAMSTYLES = {"sqlite": "named", "postgresql": "pyformat"}

Row = tuple[Any, ...]
Values = Mapping[str, int | str]
Statement = sa.Select[Any] | sa.Insert


class Prepared:
    """A statement that is compiled once for each dialect, and run by the driver: for those of a submit.

    What SQLAlchemy does around each run takes several times as long as their runs. The driver raises its own
    errors, see `driver_errors`; SQLite's returns a boolean as 0 or 1.
    """

    def __init__(self, statement: Statement | Callable[[Any], Statement], *columns: str) -> None:
        """Take a statement; an insert without values has them for these columns.

        If it uses what only the `insert` of a dialect has, the statement is what a function makes of that.
        """
        self._statement = statement
        self._columns = columns or None
        self._texts: dict[str, str] = {}

    def rows(self, connection: sa.Connection, values: Values) -> list[Row]:
        """Run the statement and return all its rows."""
        text = self._text(connection.dialect)
        started = time.monotonic_ns()
        found: list[Row] = _driver(connection).execute(text, values).fetchall()
        _trace(text, started)
        return found

    def every(self, connection: sa.Connection, values: Sequence[Values]) -> list[list[Row]]:
        """Run the query with each of these values; return the rows of each. A server answers all at once."""
        if connection.dialect.name != "postgresql" or len(values) < 2:
            return [self.rows(connection, each) for each in values]
        text = self._text(connection.dialect)
        started = time.monotonic_ns()
        cursor = _driver(connection).cursor()
        cursor.executemany(text, values, returning=True)
        found = [cursor.fetchall()]
        while cursor.nextset():
            found.append(cursor.fetchall())
        _trace(text, started)
        return found

    def each(self, connection: sa.Connection, values: Sequence[Values]) -> int:
        """Run the statement with each of these values; return how many rows it has changed in all."""
        text = self._text(connection.dialect)
        started = time.monotonic_ns()
        cursor = _driver(connection).cursor()
        if len(values) == 1:
            cursor.execute(text, values[0])
        else:
            cursor.executemany(text, values)
        _trace(text, started)
        return int(cursor.rowcount)

    def _text(self, dialect: sa.Dialect) -> str:
        text = self._texts.get(dialect.name)
        if text is None:
            made = self._statement
            if not isinstance(made, sa.Select | sa.Insert):
                made = made(import_module(f"sqlalchemy.dialects.{dialect.name}").insert)
            by_name: sa.Dialect = type(dialect)(paramstyle=_PARAMSTYLES[dialect.name])  # type: ignore[call-arg] # of DefaultDialect
            compiled = made.compile(dialect=by_name, column_keys=self._columns)
            text = self._texts[dialect.name] = str(compiled)
        return text


def is_one_of(column: sa.ColumnElement[int], ids: Collection[int]) -> sa.ColumnElement[bool]:
    """Return the condition that a column has one of these ids, of which there may be any number."""
    return _IsOneOf(column, json.dumps([*ids]))


class _Condition(FunctionElement[bool]):
    """A condition that each dialect says in its own way."""

    inherit_cache = True
    type = sa.Boolean()

    def self_group(self, against: OperatorType | None = None) -> Self:
        """Return it as it is: SQLAlchemy would compare it with 1 for SQLite, which then uses no index."""
        del against
        return self


class _IsOneOf(_Condition):
    """The condition of `is_one_of`. The ids are one value, as JSON: a statement has only so many values."""

    inherit_cache = True


@compiles(_IsOneOf, "sqlite")
def _in_sqlite(condition: _IsOneOf, compiler: SQLCompiler, **how: Any) -> str:
    column, ids = (compiler.process(each, **how) for each in condition.clauses)
    return f"{column} IN (SELECT value FROM json_each({ids}))"  # noqa: S608 - placeholders


@compiles(_IsOneOf, "postgresql")
def _in_postgresql(condition: _IsOneOf, compiler: SQLCompiler, **how: Any) -> str:
    column, ids = (compiler.process(each, **how) for each in condition.clauses)
    return f"{column} IN (SELECT value::BIGINT FROM json_array_elements_text({ids}::JSON))"  # noqa: S608


def is_found(column: sa.ColumnElement[int], ids: sa.Select[tuple[int]]) -> sa.ColumnElement[bool]:
    """Return the condition that a column has one of the ids that a query finds.

    Write it so, and not with IN, where it is one of several conditions joined by OR: PostgreSQL searches no
    index for IN (SELECT …) there, and reads the whole table.
    """
    return _IsFound(column, ids.scalar_subquery())


class _IsFound(_Condition):
    """The condition of `is_found`. PostgreSQL gets the ids first, and then searches for them in an index."""

    inherit_cache = True


@compiles(_IsFound, "sqlite")
def _found_in_sqlite(condition: _IsFound, compiler: SQLCompiler, **how: Any) -> str:
    column, ids = (compiler.process(each, **how) for each in condition.clauses)
    return f"{column} IN {ids}"


@compiles(_IsFound, "postgresql")
def _found_in_postgresql(condition: _IsFound, compiler: SQLCompiler, **how: Any) -> str:
    column, ids = (compiler.process(each, **how) for each in condition.clauses)
    return f"{column} = ANY (ARRAY{ids})"


def _driver(connection: sa.Connection) -> Any:
    return connection.connection.driver_connection


@contextmanager
def driver_errors(connection: sa.Connection) -> Iterator[None]:
    """Raise SQLAlchemy's error for one that the driver raises in a prepared statement, and drop a connection
    that is lost, as SQLAlchemy does in its own.
    """
    dialect = connection.dialect
    kind = dialect.loaded_dbapi.Error
    try:
        yield
    except kind as error:
        is_lost = dialect.is_disconnect(error, connection.connection.driver_connection, None)
        if is_lost:
            connection.invalidate(error)
        raise sa.exc.DBAPIError.instance(
            None, None, error, kind, connection_invalidated=is_lost, dialect=dialect
        ) from error


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
