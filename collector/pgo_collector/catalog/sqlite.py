"""The catalog in a file of SQLite, in the data folder of the one server that uses it."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import structlog
from sqlalchemy import event

from pgo_collector.catalog.database import Owner
from pgo_collector.catalog.faults import REINDEX, Fault, fault_of
from pgo_collector.catalog.leases import NoLeases
from pgo_collector.catalog.migrations import (
    FIRST_VERSION,
    VERSION,
    create_tables,
    stored_version,
    upgrade,
)
from pgo_collector.catalog.statements import driver_errors, trace_statement, trace_statements
from pgo_collector.catalog.tables import KEPT
from pgo_collector.errors import BackupUnusable, CatalogUnreadable
from pgo_collector.traces.spans import place

# The pause between two checks of a file that seems damaged, and the same in times that a check takes.
_RECHECK_SECONDS = 5.0
_RECHECK_PAUSE = 20.0
_log = structlog.get_logger()


class OwnChanges:
    """The changes of a process that has its catalog to itself, in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._versions: Counter[Owner] = Counter()

    def version(self, service: str, type_: str) -> int:
        """Return how often the blobs have changed."""
        return self._versions[service, type_]

    def note(self, connection: sa.Connection, changed: Collection[Owner], new: Mapping[Owner, int]) -> None:
        """Do nothing: see `noted`."""

    def noted(self, changed: Collection[Owner]) -> None:
        """Count a change."""
        with self._lock:
            for owner in changed:
                self._versions[owner] += 1

    def submitted(self, service: str, day: int) -> None:
        """Return None."""

    def drop_old(self, connection: sa.Connection) -> None:
        """Do nothing."""


class SQLite:
    """A `Database` in a file. A commit is on disk when it returns."""

    is_alone = True
    gather_seconds = 0.0  # the next ones gather while the disk syncs

    def __init__(self, path: Path, *, has_bucket: bool = False) -> None:
        """Take the path of the file; `has_bucket` says that the blobs that it counts are in a bucket."""
        self.changes = OwnChanges()
        self.leases = NoLeases(begins_settled=not has_bucket)
        self._path = path
        self._damage: str | None = None
        self._checked_again_at = 0.0
        # Every transaction is ended by the code that begins it, so the pool needn't roll back.
        self._engine = sa.create_engine(f"sqlite:///{path}", isolation_level=None, pool_reset_on_return=None)
        event.listen(self._engine, "connect", _set_up)
        event.listen(self._engine, "begin", _begin)
        trace_statements(self._engine)
        self._looking = sa.create_engine("sqlite://", creator=self._look, poolclass=sa.NullPool)
        self._writer: sa.Connection | None = None

    def __str__(self) -> str:
        return str(self._path)

    def damage(self) -> str | None:
        """Return the damage that SQLite has found in the file; only a reindex repairs it.

        A read that fails can look like damage. So the file is checked after it, again and again with pauses,
        and what isn't there any more is forgotten. Not to be called by two threads at once.
        """
        if self._damage is not None and time.monotonic() >= self._checked_again_at:
            begin = time.monotonic()
            with self.looking() as connection:
                found = _damage_in(connection)
            took = time.monotonic() - begin
            self._checked_again_at = time.monotonic() + max(_RECHECK_SECONDS, _RECHECK_PAUSE * took)
            if not found:
                _log.warning("catalog not damaged", reason=self._damage)
                self._damage = None
        return self._damage

    @property
    def repair(self) -> str:
        """Advice for a file that can't be read."""
        return REINDEX

    def open(self) -> None:
        """Make the tables those of this version; they are empty if there are no steps to it.

        Raises CatalogUnreadable.
        """
        try:
            with self.writing() as connection:
                self._make_tables(connection)
        except sa.exc.DatabaseError as error:
            self.close()
            raise CatalogUnreadable(f"catalog {self._path}: {error.orig}; {REINDEX}") from error

    def share(self) -> None:
        """Do nothing: the data folder is locked."""

    def serialize(self, connection: sa.Connection, key: str) -> None:
        """Do nothing: only one transaction writes at a time."""

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Begin a transaction that reads."""
        try:
            with self._engine.connect() as connection, driver_errors(connection), connection.begin():
                yield connection
        except sa.exc.DatabaseError as error:
            self._note_damage(error)
            raise

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Begin a transaction on the one connection that writes."""
        if self._writer is None:
            self._writer = self._engine.connect().execution_options(writes=True)
        try:
            with driver_errors(self._writer), self._writer.begin():
                yield self._writer
        except sa.exc.DatabaseError as error:
            self._note_damage(error)
            raise

    @contextmanager
    def looking(self) -> Iterator[sa.Connection]:
        """Open the file by its path, to read it; the file that is open may have another path by now."""
        with self._looking.connect() as connection:
            yield connection

    def _look(self) -> sqlite3.Connection:
        return sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True)

    def is_there(self) -> bool:
        """Return whether there is a file that this user may look at."""
        try:
            return self._path.exists()
        except OSError:
            return False

    def check(self) -> None:
        """Check the whole file. Raises CatalogUnreadable if it isn't as SQLite wrote it."""
        with self._engine.begin() as connection:
            found = _damage_in(connection)
        if found:
            raise CatalogUnreadable(f"catalog {self._path}: it is damaged: {found}; {REINDEX}")

    def clear(self) -> None:
        """Replace all tables but `KEPT` by empty ones; delete the whole file if it is damaged."""
        try:
            with self.writing() as connection:
                found = _damage_in(connection)
                if not found:
                    _remake_tables(connection)
        except sa.exc.DatabaseError as error:
            found = str(error.orig)
        self.close()
        if found:
            _log.error("waiting events lost", reason=found)
            for path in self._path.parent.glob(f"{self._path.name}*"):
                path.unlink()

    def check_copyable(self) -> None:
        """Raise BackupUnusable if there is no file."""
        if not self.is_there():
            raise BackupUnusable(
                f"data folder {self._path.parent}: there is no catalog in it; set PGOF_DIRECTORY to a"
                " server's folder"
            )

    def copy(self, path: Path) -> None:
        """Copy the file as it is at one moment."""
        with self.looking() as source, driver_errors(source), closing(sqlite3.connect(path)) as destination:
            driver: Any = source.connection.driver_connection
            driver.backup(destination)
            destination.execute("PRAGMA journal_mode=DELETE")  # so that the copy is one file

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._engine.dispose()

    def _make_tables(self, connection: sa.Connection) -> None:
        """Take the steps to this version, or replace the tables by empty ones, which `reconcile` fills."""
        version = stored_version(connection)
        if FIRST_VERSION <= version < VERSION:
            upgrade(connection)
        elif not version.is_usable and _remake_tables(connection):
            _log.warning("catalog tables replaced")

    def _note_damage(self, error: sa.exc.DatabaseError) -> None:
        if self._damage is None and fault_of(error) is Fault.DAMAGED:
            self._damage = f"it is damaged ({error.orig}): {REINDEX}"
            self._checked_again_at = 0.0
            _log.error("catalog damaged", reason=str(error.orig), fix=REINDEX)


def _damage_in(connection: sa.Connection) -> str:
    """Return the damage that SQLite finds in the file; empty if there is none."""
    try:
        found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
    except sa.exc.DatabaseError as error:
        return str(error.orig)
    return "" if found == "ok" else str(found)


def _remake_tables(connection: sa.Connection) -> bool:
    """Replace all tables but `KEPT` by empty ones; return whether there were any."""
    connection.exec_driver_sql("PRAGMA defer_foreign_keys=ON")
    old = sa.MetaData()
    kept = {table.name for table in KEPT}
    old.reflect(connection, only=lambda name, _: name not in kept)
    old.drop_all(connection)
    create_tables(connection, checkfirst=True)
    return bool(old.tables)


def _set_up(connection: Any, _: object) -> None:
    """Set a connection up. `synchronous=FULL`: a commit is on disk before the client gets its answer."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=30000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    """Begin the transaction now. The driver would do so only at the first change, and reads before that
    change would be outside it. Errors are the driver's: see `driver_errors`.
    """
    text = "BEGIN IMMEDIATE" if connection.get_execution_options().get("writes", False) else "BEGIN"
    driver: Any = connection.connection.driver_connection
    started = time.monotonic_ns()
    driver.execute(text)
    if (there := place()) is not None:
        trace_statement(there, text, started)
