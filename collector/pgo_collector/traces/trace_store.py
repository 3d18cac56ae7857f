"""The trace store: the traces of the last days, in a SQLite file of its own.

It is no part of what the collector promises: it may be deleted at any time, also while the server runs, and a
full disk costs traces and nothing else. A file of another program or version is left as it is, and traces are
dropped until it is moved away.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from isal import isal_zlib

from pgo_collector.errors import TracesUnreadable
from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.reports import CLIENTS
from pgo_collector.traces.spans import Span

FILE = "traces.sqlite3"
_APPLICATION, _VERSION = 0x50474F54, 1  # "PGOT"
_DAY_NANOS = 86_400 * 10**9
# The largest row that is read back; a trace is far smaller, and the file may be anyone's.
_MOST_BYTES = 16 << 20
_TABLES = f"""
    PRAGMA journal_mode=WAL;
    PRAGMA synchronous=OFF;
    PRAGMA journal_size_limit=1048576;
    BEGIN IMMEDIATE;
    CREATE TABLE IF NOT EXISTS requests (
        number INTEGER PRIMARY KEY, trace TEXT NOT NULL, name TEXT NOT NULL, service TEXT NOT NULL,
        start INTEGER NOT NULL, nanos INTEGER NOT NULL, status INTEGER NOT NULL, has_error INTEGER NOT NULL,
        n_spans INTEGER NOT NULL, dropped INTEGER NOT NULL, body BLOB NOT NULL
    ) STRICT;
    CREATE INDEX IF NOT EXISTS by_trace ON requests (trace);
    CREATE INDEX IF NOT EXISTS by_start ON requests (start);
    PRAGMA application_id={_APPLICATION};
    PRAGMA user_version={_VERSION};
    COMMIT;
"""
_INSERT = (
    "INSERT INTO requests (trace, name, service, start, nanos, status, has_error, n_spans, dropped, body)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SUMMARY = "trace, name, service, start, nanos, status, has_error, n_spans"
# In a pattern of GLOB, as in the scope of a key, `*` matches any text. Names of services have no other of its
# special characters.
_OF_SERVICES = "EXISTS (SELECT 1 FROM json_each(?) WHERE service GLOB value)"
_NO_REPORT = f"name NOT IN ({', '.join(map(repr, CLIENTS))})"
_OLDEST = "DELETE FROM requests WHERE number IN (SELECT number FROM requests ORDER BY number LIMIT 64)"
# Spans don't contain themselves; to look for that takes two fifths of the time.
_json = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_IsalError: type[Exception] = isal_zlib.IsalError  # type: ignore[assignment]  # its stub says instance

Order = Literal["newest", "slowest"]
ALL_SERVICES = ("*",)
LATEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """A request in a list: `start` in ns since 1970, `nanos` how long it took, `spans` how many there are."""

    trace: str
    name: str
    service: str
    start: int
    nanos: int
    status: int
    has_error: bool
    spans: int


@dataclass(frozen=True, slots=True)
class TraceQuery:
    """The requests to list: at most `limit`, of these services, that began from `since` on.

    `services` are names, or patterns in which `*` matches any text; a request about no service has an empty
    name, which only `*` matches. `since` and `until` are in ns since 1970; a request that began at `until`
    isn't included.
    """

    services: Sequence[str] = ALL_SERVICES
    errors: bool = False
    order: Order = "newest"
    since: int = 0
    until: int = LATEST
    limit: int = 50


class TraceStore:
    """Writes traces, on one thread; keeps `days` and about `megabytes` of them.

    `is_trusted` says whether traces may be deleted by a clock that shows a time in ns since 1970.
    """

    def __init__(
        self, path: Path, days: float, megabytes: float, is_trusted: Callable[[int], bool] = lambda _: True
    ) -> None:
        self._path = path
        self._most_nanos = days * _DAY_NANOS
        self._most_bytes = megabytes * (1 << 20)
        self._is_trusted = is_trusted
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)
        self._bytes = 0

    def write(self, traces: Sequence[RequestTrace]) -> None:
        """Add traces, and delete old ones. Raises sqlite3.Error, OSError or TracesUnreadable."""
        try:
            connection = self._connected()
            rows = [_row(trace) for trace in traces]
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(_INSERT, rows)
                self._bytes += sum(len(row[-1]) for row in rows)
                self._delete_old(connection)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(sqlite3.Error):
                connection.close()

    def _connected(self) -> sqlite3.Connection:
        """Return the connection to the file at the path, which may be a new one since the last write."""
        with suppress(FileNotFoundError):
            found = self._path.stat()
            if self._connection is not None and (found.st_dev, found.st_ino) == self._identity:
                return self._connection
        self.close()
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=1, check_same_thread=False)
        try:
            _check_version(connection, self._path)
            connection.executescript(_TABLES)
            self._bytes = connection.execute(
                "SELECT coalesce(sum(length(body)), 0) FROM requests"
            ).fetchone()[0]
            found = self._path.stat()
        except BaseException:
            connection.close()
            raise
        self._connection, self._identity = connection, (found.st_dev, found.st_ino)
        return connection

    def _delete_old(self, connection: sqlite3.Connection) -> None:
        now = time.time_ns()
        if self._is_trusted(now):
            oldest = max(int(now - min(self._most_nanos, now)), 0)
            gone = connection.execute(
                "DELETE FROM requests WHERE start < ? RETURNING length(body)", (oldest,)
            ).fetchall()
            self._bytes -= sum(size for (size,) in gone)
        while self._bytes > self._most_bytes:
            gone = connection.execute(f"{_OLDEST} RETURNING length(body)").fetchall()
            if not gone:
                break
            self._bytes -= sum(size for (size,) in gone)


class TraceReader:
    """Reads a trace store, also while a server writes it. Methods block, and raise TracesUnreadable."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def summaries(self, query: TraceQuery) -> list[TraceSummary]:
        """Return the requests that a query asks for, the newest or the slowest first."""
        where, values = _where(query)
        order = "nanos DESC" if query.order == "slowest" else "start DESC"
        statement = f"SELECT {_SUMMARY} FROM requests WHERE {where} ORDER BY {order} LIMIT ?"  # noqa: S608
        with closing(self._opened()) as connection:
            return [
                TraceSummary(*row) for row in _rows(connection, self._path, statement, (*values, query.limit))
            ]

    def traces(self, query: TraceQuery) -> Iterator[RequestTrace]:
        """Yield the whole traces of the requests that a query asks for, and then what clients reported."""
        where, values = _where(query)
        order = "nanos DESC" if query.order == "slowest" else "start DESC"
        asked = f"FROM requests WHERE {where} ORDER BY {order} LIMIT ?"
        reports = f"FROM requests WHERE NOT {_NO_REPORT} AND trace IN (SELECT trace {asked})"
        with closing(self._opened()) as connection:
            for rows in (asked, reports):
                statement = f"SELECT trace, service, status, dropped, body {rows}"
                for row in _rows(connection, self._path, statement, (*values, query.limit)):
                    yield _trace(self._path, row)

    def requests(self, trace: str, services: Sequence[str] = ALL_SERVICES) -> Iterator[RequestTrace]:
        """Yield what is kept of a trace: its requests about these services, the first one first.

        `services` are as in a `TraceQuery`. Yields nothing if the trace isn't known.
        """
        columns = "trace, service, status, dropped, body"
        statement = f"SELECT {columns} FROM requests WHERE trace = ? AND {_OF_SERVICES} ORDER BY start"  # noqa: S608
        with closing(self._opened()) as connection:
            values = (trace.lower(), json.dumps([*services]))
            for row in _rows(connection, self._path, statement, values):
                yield _trace(self._path, row)

    def _opened(self) -> sqlite3.Connection:
        if not self._path.exists():
            raise TracesUnreadable(f"there are no traces yet: no file {self._path}")
        try:
            connection = sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode=ro", uri=True, timeout=5, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise TracesUnreadable(f"{self._path}: {error}") from error
        try:
            _check_version(connection, self._path)
        except BaseException:
            connection.close()
            raise
        return connection


def _where(query: TraceQuery) -> tuple[str, tuple[object, ...]]:
    where = ["start >= ?", "start < ?", _OF_SERVICES, _NO_REPORT, *(["has_error"] if query.errors else [])]
    return " AND ".join(where), (query.since, query.until, json.dumps([*query.services]))


def _rows(
    connection: sqlite3.Connection, path: Path, statement: str, values: tuple[object, ...]
) -> Iterator[tuple[Any, ...]]:
    try:
        yield from connection.execute(statement, values)
    except sqlite3.Error as error:
        raise TracesUnreadable(f"{path}: {error}") from error


def _is_new(connection: sqlite3.Connection) -> bool:
    return not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Raise TracesUnreadable unless this version wrote the file, or nobody has written to it yet."""
    try:
        if _is_new(connection):
            return
        found = [
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        ]
    except sqlite3.Error as error:
        raise TracesUnreadable(f"{path}: {error}; move it away to have a new one made") from error
    if found != [_APPLICATION, _VERSION]:
        raise TracesUnreadable(
            f"{path} has no traces of this version of pgo-collector; move it away to have a new one made"
        )


def _row(trace: RequestTrace) -> tuple[Any, ...]:
    root = trace.spans[0]
    body = isal_zlib.compress(_json(trace.spans).encode(), 1)
    summary = trace.trace, root.name, trace.service, root.start, root.end - root.start, trace.status
    return (*summary, trace.has_error, len(trace.spans), trace.dropped, body)


def _trace(path: Path, row: tuple[Any, ...]) -> RequestTrace:
    trace, service, status, dropped, body = row
    try:
        text = isal_zlib.decompressobj().decompress(body, _MOST_BYTES)
        spans = [Span(*fields) for fields in json.loads(text)]
    except (_IsalError, ValueError, TypeError) as error:
        raise TracesUnreadable(f"{path}: trace {trace} is damaged: {error}") from error
    return RequestTrace(trace, service, status, spans, dropped)
