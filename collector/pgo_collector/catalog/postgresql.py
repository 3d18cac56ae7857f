"""The catalog in PostgreSQL, through psycopg. One server writes it; the blobs are in its data folder."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from math import ceil, inf
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.string import StrDumperUnknown
from sqlalchemy import event

from pgo_collector.catalog.faults import Fault, fault_of
from pgo_collector.catalog.migrations import (
    NO_VERSION,
    VERSION,
    Version,
    create_tables,
    stored_version,
    upgrade,
)
from pgo_collector.catalog.statements import driver_errors, trace_statements
from pgo_collector.catalog.tables import METADATA, OUTBOX
from pgo_collector.errors import BackupUnusable, CatalogUnreadable

T = TypeVar("T")
# How long a server that starts, or lost its connection, waits for the lock of one that is just ending.
_LOCK_SECONDS = 10
_LOCK_PAUSE_SECONDS = 0.1
# The first number of the lock, so that it isn't another program's. The second one is the schema's.
_LOCK = 0x70676F
# Settings of a session, for the server to notice within half a minute that the collector's machine is gone,
# and free the lock. Its own defaults are hours.
_KEEPALIVES = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "4"}
# How much later than the server the client gives a statement up: it is for a server that hangs.
_GRACE_SECONDS = 2.0


class PostgreSQL:
    """A `Database` in PostgreSQL, in the first schema of the connection's search path.

    The connection that writes holds a lock, so no other server writes the same catalog. If it is lost, so are
    the lock and the transaction; the next transaction gets the lock again, or fails.
    """

    def __init__(self, url: str, connections: int, connect_seconds: float, statement_seconds: float) -> None:
        self._url = url
        self._connect_seconds = connect_seconds
        self._statement_seconds = statement_seconds
        self._readers = self._engine(connections)
        self._writer = self._engine(1)
        event.listen(self._writer, "connect", _take_lock)

    def __str__(self) -> str:
        try:
            parts = conninfo_to_dict(self._url)
        except psycopg.Error:
            return "in PostgreSQL"
        return f"in PostgreSQL, {parts.get('dbname', '')} at {parts.get('host', 'localhost')}"

    @property
    def damage(self) -> None:
        """None: PostgreSQL looks after its files."""

    @property
    def repair(self) -> str:
        """Advice for a database that can't be read."""
        return "start PostgreSQL, let this user in, or correct PGOF_CATALOG"

    def open(self) -> None:
        """Take the lock, and make the tables, or take the steps to this version. Raises CatalogUnreadable."""
        try:
            with self.writing() as connection:
                encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
                version = self.version(connection)
                if encoding != "UTF8":
                    raise CatalogUnreadable(
                        f"catalog {self}: names may have any letters, and its encoding is {encoding}; make a"
                        " database with ENCODING 'UTF8'"
                    )
                if version == NO_VERSION:
                    # A table of this name that is there is another program's.
                    create_tables(connection, checkfirst=False)
                elif version.major > VERSION.major:
                    raise CatalogUnreadable(
                        f"catalog {self}: a newer version of pgo-collector has changed its tables; run that"
                        " version, or take another database"
                    )
                elif not version.is_usable:
                    upgrade(connection)
        except sa.exc.SQLAlchemyError as error:
            self.close()
            raise self._unreadable(error) from error

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Begin a transaction that reads."""
        with self._readers.begin() as connection, driver_errors(connection):
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Begin a transaction on the one connection that writes."""
        with self._writer.begin() as connection, driver_errors(connection):
            yield connection

    def looking(self) -> AbstractContextManager[sa.Connection]:
        """Begin a transaction that reads."""
        return self.reading()

    def version(self, connection: sa.Connection) -> Version:
        """Return the version of the tables; NO_VERSION if there are none."""
        return stored_version(connection)

    def is_there(self) -> bool:
        """Return whether there are tables."""
        with self.looking() as connection:
            return self.version(connection) != NO_VERSION

    def check(self) -> None:
        """Do nothing: PostgreSQL looks after its files."""

    def clear(self) -> None:
        """Make all tables anew but the outbox. Raises CatalogUnreadable."""
        try:
            with self.writing() as connection:
                if self.version(connection) != NO_VERSION:
                    METADATA.drop_all(connection, [t for t in METADATA.sorted_tables if t is not OUTBOX])
                    create_tables(connection, checkfirst=True)
        except sa.exc.SQLAlchemyError as error:
            raise self._unreadable(error) from error
        finally:
            self.close()

    def check_copyable(self) -> None:
        """Raise BackupUnusable."""
        raise BackupUnusable(
            "the catalog is in PostgreSQL (PGOF_CATALOG): back it up with pg_dump, and the data folder with a"
            " snapshot of its file system that is made after that"
        )

    def copy(self, path: Path) -> None:
        """Raise BackupUnusable."""
        del path
        self.check_copyable()

    def close(self) -> None:
        """Close all connections."""
        self._writer.dispose()
        self._readers.dispose()

    def _unreadable(self, error: sa.exc.SQLAlchemyError) -> CatalogUnreadable:
        if fault_of(error) is Fault.IN_USE:
            return CatalogUnreadable(
                f"catalog {self}: another pgo-collector uses it; stop that one, or take another database"
            )
        return CatalogUnreadable(f"catalog {self}: {getattr(error, 'orig', error)}; {self.repair}")

    def _engine(self, connections: int) -> sa.Engine:
        """Return an engine with so many connections at most, which are tried before they are used again."""
        engine = sa.create_engine(
            "postgresql+psycopg://",
            creator=self._connect,
            isolation_level="REPEATABLE READ",
            pool_size=connections,
            max_overflow=0,
            pool_timeout=self._connect_seconds,
            pool_pre_ping=True,
        )
        trace_statements(engine)
        return engine

    def _connect(self) -> psycopg.Connection[Any]:
        """Connect as the URL says, which libpq reads, and libpq's own variables and files."""
        connection = _Connection.connect(
            self._url,
            connect_timeout=ceil(self._connect_seconds),
            fallback_application_name="pgo-collector",
        )
        connection.answer_seconds = self._statement_seconds + _GRACE_SECONDS
        connection.adapters.register_loader("numeric", _WholeLoader)
        connection.adapters.register_dumper(str, _TextDumper)
        bound = f"{self._statement_seconds * 1000:.0f}"
        for setting in {**_KEEPALIVES, "statement_timeout": bound}.items():
            connection.execute("SELECT set_config(%s, %s, false)", setting)
        connection.commit()
        return connection


class _WholeLoader(Loader):
    """Loads the sums of integers, which are numerics, as integers. There are no fractions in the catalog."""

    def load(self, data: Any) -> int:
        return int(bytes(data))


class _TextDumper(StrDumperUnknown):
    """Dumps texts with another control character for NUL, which texts in PostgreSQL can't have.

    No name has a control character, so what is looked for with either isn't found.
    """

    def dump(self, obj: str) -> Any:
        return super().dump(obj.replace("\0", "\1"))


class _Connection(psycopg.Connection[Any]):
    """A connection that is closed when the server doesn't answer in time, as one that hangs.

    A statement that only takes long is cancelled by the server before.
    """

    answer_seconds = inf

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        """Wait for what the server answers. Raises QueryCanceled."""
        return super().wait(self._bounded(gen), *args, **kwargs)

    def _bounded(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """Pass on what psycopg waits for, until it is too late; nothing is ready when it only looks up."""
        deadline, ready = time.monotonic() + self.answer_seconds, None
        while True:
            try:
                awaited = gen.send(ready)
            except StopIteration as done:
                result: T = done.value
                return result
            ready = yield awaited
            if not ready and time.monotonic() > deadline:
                self.close()
                raise psycopg.errors.QueryCanceled("the server doesn't answer")


def _take_lock(connection: psycopg.Connection[Any], _: object) -> None:
    """Take the lock of the catalog's schema for as long as the connection lasts. Raises LockNotAvailable."""
    deadline = time.monotonic() + _LOCK_SECONDS
    try:
        while not _has_lock(connection):
            if time.monotonic() > deadline:
                raise psycopg.errors.LockNotAvailable("another pgo-collector writes this catalog")
            time.sleep(_LOCK_PAUSE_SECONDS)
    except psycopg.Error:
        connection.close()
        raise


def _has_lock(connection: psycopg.Connection[Any]) -> bool:
    query = "SELECT pg_try_advisory_lock(%s, hashtext(current_schema()))"
    row = connection.execute(query, [_LOCK]).fetchone()
    connection.commit()
    return row == (True,)
