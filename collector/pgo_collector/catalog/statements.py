"""Statements: those that the driver runs as they are, what each dialect says in its own way, and all as steps
of traces.

A step has the statement's text, with placeholders where values go. Values aren't recorded.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, Self, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.operators import OperatorType
from sqlalchemy.sql.visitors import replacement_traverse
from sqlalchemy.types import TypeEngine

from pgo_collector.traces.spans import Place, place

_LONGEST_TEXT = 1000
# How each driver takes values by name.
_PARAMSTYLES = {"sqlite": "named", "postgresql": "pyformat"}
# The database that gets the values of many runs in one statement.
_TAKES_ALL = "postgresql"

Row = tuple[Any, ...]
Values = Mapping[str, int | str]
T = TypeVar("T")
# The parameter that has the values of many runs, the table that PostgreSQL makes of them, and their number.
_ALL, _VALUES, _NUMBER = "all_values", "one", "number"
_NONE_COMPUTED: Mapping[str, sa.ColumnElement[Any]] = MappingProxyType({})


class _Prepared(ABC):
    """A statement of a submit, which is compiled once for each dialect, and run by the driver.

    SQLAlchemy's own work around each run takes several times as long as the run. PostgreSQL gets the values
    of many runs in one statement: with a message for each, it and this thread would wake each other that many
    times. The driver raises its own errors, see `driver_errors`; SQLite's returns a boolean as 0 or 1.
    """

    def __init__(self) -> None:
        self._texts: dict[tuple[str, bool], str] = {}

    def run(self, connection: sa.Connection, values: Values | Sequence[Values]) -> Any:
        """Run the statement once, or once for each of several values; return the driver's cursor."""
        dialect, is_many = connection.dialect, not isinstance(values, Mapping)
        driver: Any = connection.connection.driver_connection
        text = self._texts.get((dialect.name, is_many)) or self._made_text(dialect, is_many=is_many)
        started = time.monotonic_ns()
        if isinstance(values, Mapping):
            cursor = driver.execute(text, values)
        elif dialect.name == _TAKES_ALL:
            numbered = [{_NUMBER: number, **each} for number, each in enumerate(values)]
            cursor = driver.execute(text, {_ALL: json.dumps(numbered)})
        else:
            cursor = driver.executemany(text, values)
        if (there := place()) is not None:
            trace_statement(there, text, started)
        return cursor

    def _made_text(self, dialect: sa.Dialect, *, is_many: bool) -> str:
        by_name: sa.Dialect = type(dialect)(paramstyle=_PARAMSTYLES[dialect.name])  # type: ignore[call-arg] # of DefaultDialect
        takes_all = is_many and dialect.name == _TAKES_ALL
        made = self._of_all(by_name) if takes_all else self._of_one(by_name)
        self._texts[dialect.name, is_many] = made
        return made

    @abstractmethod
    def _of_one(self, dialect: sa.Dialect) -> str:
        """Return the statement's text."""

    @abstractmethod
    def _of_all(self, dialect: sa.Dialect) -> str:
        """Return its text for many runs, whose values are the objects of one JSON array."""


class PreparedQuery(_Prepared):
    """A query that is compiled once."""

    def __init__(self, query: sa.Select[Any]) -> None:
        super().__init__()
        self._query = query

    def every(self, connection: sa.Connection, values: Sequence[Values]) -> list[list[Row]]:
        """Run the query with each of these values; return the rows of each."""
        if not values or connection.dialect.name != _TAKES_ALL:
            return [self.run(connection, each).fetchall() for each in values]
        found: list[list[Row]] = [[] for _ in values]
        for number, *row in self.run(connection, values):
            found[number].append(tuple(row))
        return found

    def _of_one(self, dialect: sa.Dialect) -> str:
        return str(self._query.compile(dialect=dialect))

    def _of_all(self, dialect: sa.Dialect) -> str:
        """Return the text of a loop over the values, in which the query searches indexes.

        Without OFFSET, PostgreSQL might choose to join the values with all of a table.
        """
        used: dict[str, TypeEngine[Any]] = {}
        found = _with_columns(self._query, used).offset(sa.literal_column("0")).lateral("found")
        number: sa.ColumnElement[int] = sa.literal_column(f"{_VALUES}.{_NUMBER}")
        query = sa.select(number, *found.c).select_from(_all_values(used, dialect)).select_from(found)
        return str(query.compile(dialect=dialect))


class PreparedInsert(_Prepared):
    """An insert that is compiled once."""

    def __init__(
        self,
        table: sa.Table,
        *columns: str,
        computed: Mapping[str, sa.ColumnElement[Any]] = _NONE_COMPUTED,
        then: Callable[[Any], Any] = lambda insert: insert,
    ) -> None:
        """Take the columns that get values, and those that get an expression, which may have values, too.

        `then` makes the whole statement of the `insert` of a dialect.
        """
        super().__init__()
        self._table = table
        values = {column: sa.bindparam(column, type_=table.c[column].type) for column in columns}
        self._expressions: dict[str, sa.ColumnElement[Any]] = {**values, **computed}
        self._then = then

    def _of_one(self, dialect: sa.Dialect) -> str:
        insert = self._insert(dialect).values(self._expressions)
        return str(self._then(insert).compile(dialect=dialect))

    def _of_all(self, dialect: sa.Dialect) -> str:
        used: dict[str, TypeEngine[Any]] = {}
        expressions = [_with_columns(each, used) for each in self._expressions.values()]
        rows = sa.select(*expressions).select_from(_all_values(used, dialect))
        insert = self._insert(dialect).from_select([*self._expressions], rows)
        return str(self._then(insert).compile(dialect=dialect))

    def _insert(self, dialect: sa.Dialect) -> Any:
        return import_module(f"sqlalchemy.dialects.{dialect.name}").insert(self._table)


def _with_columns(expression: T, used: dict[str, TypeEngine[Any]]) -> T:
    """Return an expression with columns of `_all_values` for its values, whose types are added to `used`."""

    def column(element: Any, **_: Any) -> Any:
        if not isinstance(element, sa.BindParameter):
            return None
        used[element.key] = element.type
        return sa.literal_column(f"{_VALUES}.{element.key}", element.type)

    return cast("T", replacement_traverse(cast("Any", expression), {}, column))


def _all_values(columns: Mapping[str, TypeEngine[Any]], dialect: sa.Dialect) -> sa.TextClause:
    """Return what PostgreSQL selects the values of many runs from, with the number of each run:

    json_to_recordset('[{"number": 0, "service": "shop"}, …]') AS one (number BIGINT, service TEXT)
    """
    types = [f"{_NUMBER} BIGINT", *(f"{name} {kind.compile(dialect)}" for name, kind in columns.items())]
    return sa.text(f"json_to_recordset(CAST(:{_ALL} AS JSON)) AS {_VALUES} ({', '.join(types)})")


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
    """The condition of `is_one_of`. The ids are one value, as JSON: the number of values is limited."""

    inherit_cache = True


@compiles(_IsOneOf, "sqlite")
def _in_sqlite(condition: _IsOneOf, compiler: SQLCompiler, **how: Any) -> str:
    column, ids = (compiler.process(each, **how) for each in condition.clauses)
    return f"{column} IN (SELECT value FROM json_each({ids}))"  # noqa: S608 - placeholders


@compiles(_IsOneOf, "postgresql")
def _in_postgresql(condition: _IsOneOf, compiler: SQLCompiler, **how: Any) -> str:
    column, ids = (compiler.process(each, **how) for each in condition.clauses)
    return f"{column} IN (SELECT value::BIGINT FROM json_array_elements_text({ids}::JSON))"  # noqa: S608


def fits_pattern(column: sa.ColumnElement[str], patterns: Collection[str]) -> sa.ColumnElement[bool]:
    """Return the condition that a column fits one of these patterns, in which `*` is any text.

    Other characters in them stand for themselves, and are none that GLOB gives a meaning to.
    """
    likes = [pattern.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_") for pattern in patterns]
    as_likes = [pattern.replace("*", "%") for pattern in likes]
    return _FitsPattern(column, json.dumps([*patterns]), json.dumps(as_likes))


class _FitsPattern(_Condition):
    """The condition of `fits_pattern`. The patterns are one value, as GLOB and as LIKE has them."""

    inherit_cache = True


@compiles(_FitsPattern, "sqlite")
def _fits_in_sqlite(condition: _FitsPattern, compiler: SQLCompiler, **how: Any) -> str:
    column, globs, _ = condition.clauses
    patterns = f"SELECT 1 FROM json_each({compiler.process(globs, **how)})"  # noqa: S608 - placeholders
    return f"EXISTS ({patterns} WHERE {compiler.process(column, **how)} GLOB value)"


@compiles(_FitsPattern, "postgresql")
def _fits_in_postgresql(condition: _FitsPattern, compiler: SQLCompiler, **how: Any) -> str:
    column, _, likes = condition.clauses
    patterns = f"SELECT json_array_elements_text({compiler.process(likes, **how)}::JSON)"
    return f"{compiler.process(column, **how)} LIKE ANY (ARRAY({patterns}))"


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
    if started is not None and (there := place()) is not None:
        trace_statement(there, statement, started)


def trace_statement(there: Place, statement: str, started: int) -> None:
    """Record a statement that began at this time of the monotonic clock, in ns, and has just ended."""
    verb, attributes = _named(statement)
    there.add("catalog", verb, started, None, attributes)


@lru_cache(64)
def _named(statement: str) -> tuple[str, Values]:
    """Return the verb of a statement, and as an attribute its text on one line."""
    words = statement.split()
    return words[0], {"db.query.text": " ".join(words)[:_LONGEST_TEXT]}
