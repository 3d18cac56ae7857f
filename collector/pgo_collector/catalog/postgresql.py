"""The catalog in PostgreSQL, through psycopg: of one collector, or of several that share a storage, too."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from math import ceil, inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.string import StrDumperUnknown
from sqlalchemy import event
from sqlalchemy.engine.interfaces import IsolationLevel

from pgo_collector.catalog.database import Owner
from pgo_collector.catalog.faults import Fault, fault_of
from pgo_collector.catalog.leases import NoLeases, SharedLeases
from pgo_collector.catalog.migrations import (
    FIRST_VERSION,
    NO_VERSION,
    VERSION,
    create_tables,
    stored_version,
    upgrade,
)
from pgo_collector.catalog.sqlite import OwnChanges
from pgo_collector.catalog.statements import (
    PreparedInsert,
    PreparedQuery,
    Values,
    driver_errors,
    trace_statements,
)
from pgo_collector.catalog.tables import CHANGES, KEPT, METADATA
from pgo_collector.errors import BackupUnusable, CatalogInUse, CatalogUnreachable, CatalogUnreadable

T = TypeVar("T")
# How long a server that starts, or lost its connection, waits for the lock of one that is just ending.
_LOCK_SECONDS = 10
_LOCK_PAUSE_SECONDS = 0.1
# The first numbers of locks, so that they aren't another program's: of the catalog, whose second number is
# the schema's; of the tables, for a change of them; of a key, see `serialize`.
_LOCK, _TABLES_LOCK, _KEY_LOCK = 0x70676F, 0x70676F + 1, 0x70676F + 2
# How long a statement waits for a row that another collector's transaction has changed (ms).
_ROW_MILLISECONDS = "500"
# Settings of a session, for the server to notice within half a minute that the collector's machine is gone,
# and free the lock. Its own defaults are hours.
_KEEPALIVES = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "4"}
# How much later than the server the client gives a statement up: it is for a server that hangs.
_GRACE_SECONDS = 2.0
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
_DAY_SECONDS = 86_400
_SCHEMA = sa.func.hashtext(sa.func.current_schema())


class PostgreSQL:
    """A `Database` in PostgreSQL, in the first schema of the connection's search path.

    The connection that writes holds a lock on the catalog: alone, or if several collectors share it, together
    with them. If the connection is lost, so are the lock and the transaction; the next transaction gets the
    lock again, or fails.

    A collector that may share it has it alone at first, if no other is there: then it can compare it with the
    blobs. `share` lets others in.
    """

    # A transaction asks the server some eight times, however many profiles are in it. On busy cores, those
    # that are being validated take this long.
    gather_seconds = 0.03

    def __init__(
        self,
        url: str,
        connections: int,
        connect_seconds: float,
        statement_seconds: float,
        *,
        shared_seconds: float | None = None,
    ) -> None:
        """Take the bounds of connections; several collectors may use it if there are `shared_seconds`.

        PostgreSQL ends a transaction of a collector that has done nothing for `shared_seconds`, as when its
        machine sleeps.
        """
        self._url = url
        self._connect_seconds = connect_seconds
        self._statement_seconds = statement_seconds
        self._may_share = shared_seconds is not None
        self._readers = self._engine(connections, "REPEATABLE READ")
        settings = {}
        if shared_seconds is not None:
            settings = {
                "lock_timeout": _ROW_MILLISECONDS,
                "idle_in_transaction_session_timeout": f"{shared_seconds * 1000:.0f}",
            }
        # What another collector has committed is seen, and waited for, row by row.
        self._writer = self._engine(1, "READ COMMITTED", settings)
        # Leases mustn't wait for other transactions of this process.
        self._leasing = self._engine(1, "READ COMMITTED", settings)
        self.is_alone = True
        self.changes = SharedChanges(self.reading) if self._may_share else OwnChanges()
        self.leases = SharedLeases(self._leasing_transaction) if self._may_share else NoLeases()
        event.listen(self._writer, "connect", self._take_lock)

    def __str__(self) -> str:
        try:
            parts = conninfo_to_dict(self._url)
        except psycopg.Error:
            return "in PostgreSQL"
        return f"in PostgreSQL, {parts.get('dbname', '')} at {parts.get('host', 'localhost')}"

    def damage(self) -> None:
        """Return None: PostgreSQL looks after its files."""

    @property
    def repair(self) -> str:
        """Advice for a database that can't be read."""
        return "start PostgreSQL, let this user in, or correct PGOF_CATALOG"

    def open(self) -> None:
        """Take the lock, and make the tables, or take the steps to this version.

        Raises CatalogInUse and CatalogUnreadable.
        """
        self.is_alone = True
        try:
            try:
                self._make_tables()
            except sa.exc.SQLAlchemyError as error:
                if not self._may_share or fault_of(error) is not Fault.IN_USE:
                    raise
                self.is_alone = False
                self._make_tables()
        except sa.exc.SQLAlchemyError as error:
            self.close()
            raise self._unreadable(error) from error

    def _make_tables(self) -> None:
        with self.writing() as connection:
            connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_TABLES_LOCK, _SCHEMA)))
            encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
            version = stored_version(connection)
            if encoding != "UTF8":
                raise CatalogUnreadable(
                    f"catalog {self}: names may have any letters, and its encoding is {encoding}; make a"
                    " database with ENCODING 'UTF8'"
                )
            if version == NO_VERSION:
                if not self.is_alone:  # they would count nothing of what is stored
                    raise CatalogInUse(
                        f"catalog {self}: its tables are gone, and other collectors still use it; stop them,"
                        " so that it can be made again from the blobs"
                    )
                # A table of this name that is there is another program's.
                create_tables(connection, checkfirst=False)
            elif version.major > VERSION.major:
                raise CatalogUnreadable(
                    f"catalog {self}: a newer version of pgo-collector has changed its tables; run that"
                    " version, or take another database"
                )
            elif version < FIRST_VERSION:
                raise CatalogUnreadable(
                    f"catalog {self}: its tables are of a version before 1.0.0; drop them, and the start"
                    " makes them again from the blobs, or take another database"
                )
            elif version.major < VERSION.major and not self.is_alone:
                raise CatalogInUse(
                    f"catalog {self}: collectors of an older version use its tables, which this version"
                    " changes; stop them"
                )
            elif not version.is_usable:
                upgrade(connection)
            self.changes.drop_old(connection)

    def share(self) -> None:
        """Hold the lock together with others from now on, if several collectors may use the catalog."""
        if not self._may_share or not self.is_alone:
            return
        with self.writing() as connection:
            connection.execute(sa.select(sa.func.pg_advisory_lock_shared(_LOCK, _SCHEMA)))
            connection.execute(sa.select(sa.func.pg_advisory_unlock(_LOCK, _SCHEMA)))
            self.is_alone = False

    def serialize(self, connection: sa.Connection, key: str) -> None:
        """Take a lock that the transaction gives back. Raises a conflict if another has it for too long."""
        if self._may_share:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_KEY_LOCK, sa.func.hashtext(key))))

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

    @contextmanager
    def _leasing_transaction(self) -> Iterator[sa.Connection]:
        with self._leasing.begin() as connection, driver_errors(connection):
            yield connection

    def looking(self) -> AbstractContextManager[sa.Connection]:
        """Begin a transaction that reads."""
        return self.reading()

    def is_there(self) -> bool:
        """Return whether there are tables."""
        with self.looking() as connection:
            return stored_version(connection) != NO_VERSION

    def check(self) -> None:
        """Do nothing: PostgreSQL looks after its files."""

    def clear(self) -> None:
        """Replace all tables but `KEPT` by empty ones. Raises CatalogUnreadable."""
        try:
            with self.writing() as connection:
                if stored_version(connection) != NO_VERSION:
                    METADATA.drop_all(connection, [t for t in METADATA.sorted_tables if t not in KEPT])
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
        for engine in (self._leasing, self._writer, self._readers):
            engine.dispose()

    def _unreadable(self, error: sa.exc.SQLAlchemyError) -> CatalogUnreadable:
        fault = fault_of(error)
        if fault is Fault.IN_USE:
            return CatalogInUse(
                f"catalog {self}: another pgo-collector uses it; stop that one, or take another database"
            )
        kind = CatalogUnreachable if fault in {Fault.GONE, Fault.SLOW} else CatalogUnreadable
        return kind(f"catalog {self}: {getattr(error, 'orig', error)}; {self.repair}")

    def _engine(
        self, connections: int, isolation: IsolationLevel, settings: Mapping[str, str] = _NO_SETTINGS
    ) -> sa.Engine:
        """Return an engine with at most `connections`, which are tried before they are used again."""
        engine = sa.create_engine(
            "postgresql+psycopg://",
            creator=lambda: self._connect(settings),
            isolation_level=isolation,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=self._connect_seconds,
            pool_pre_ping=True,
        )
        trace_statements(engine)
        return engine

    def _connect(self, settings: Mapping[str, str]) -> psycopg.Connection[Any]:
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
        # Compiling a plan takes longer than running any of these.
        every = {**_KEEPALIVES, "statement_timeout": bound, "jit": "off", **settings}
        for setting in every.items():
            connection.execute("SELECT set_config(%s, %s, false)", setting)
        connection.commit()
        return connection

    def _take_lock(self, connection: psycopg.Connection[Any], _: object) -> None:
        """Take the lock of the catalog's schema for as long as the connection lasts. Raises ObjectInUse.

        A collector that may share the catalog doesn't wait until it has it alone.
        """
        wait = 0 if self._may_share and self.is_alone else _LOCK_SECONDS
        function = "pg_try_advisory_lock" if self.is_alone else "pg_try_advisory_lock_shared"
        deadline = time.monotonic() + wait
        try:
            while not _has_lock(connection, function):
                if time.monotonic() >= deadline:
                    raise psycopg.errors.ObjectInUse("another pgo-collector writes this catalog")
                time.sleep(_LOCK_PAUSE_SECONDS)
        except psycopg.Error:
            connection.close()
            raise


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


def _has_lock(connection: psycopg.Connection[Any], function: str) -> bool:
    query = f"SELECT {function}(%s, hashtext(current_schema()))"
    row = connection.execute(query, [_LOCK]).fetchone()
    connection.commit()
    return row == (True,)


def _count(insert: Any) -> Any:
    new = insert.excluded
    before = sa.case((CHANGES.c.day == new.day, CHANGES.c.submitted), else_=sa.text("0"))
    return insert.on_conflict_do_update(
        index_elements=("service", "type", "collector"),
        set_={
            "version": CHANGES.c.version + sa.text("1"),
            "day": new.day,
            "submitted": before + new.submitted,
        },
    )


_COUNT = PreparedInsert(CHANGES, *CHANGES.c.keys(), then=_count)
_VERSIONS = PreparedQuery(
    sa.select(CHANGES.c.collector, CHANGES.c.version).where(
        CHANGES.c.service == sa.bindparam("service"), CHANGES.c.type == sa.bindparam("type")
    )
)


class SharedChanges:
    """The changes of several collectors, in CHANGES. `reading` begins a transaction that reads.

    Each collector has rows of its own there, so that none waits for another's transaction. All of them
    together are the version.
    """

    def __init__(self, reading: Callable[[], AbstractContextManager[sa.Connection]]) -> None:
        self._reading = reading
        self._collector = secrets.randbits(62)

    def version(self, service: str, type_: str) -> frozenset[tuple[int, int]]:
        """Return the versions of all collectors."""
        with self._reading() as connection:
            rows = _VERSIONS.run(connection, {"service": service, "type": type_}).fetchall()
        return frozenset((collector, version) for collector, version in rows)

    def note(self, connection: sa.Connection, changed: Collection[Owner], new: Mapping[Owner, int]) -> None:
        """Raise this collector's versions."""
        now = time.time_ns()
        day = now // (_DAY_SECONDS * 10**9)
        rows: list[Values] = [
            {
                "service": service,
                "type": type_,
                "collector": self._collector,
                "version": now,  # no version comes twice, even if a row was dropped meanwhile
                "day": day,
                "submitted": new.get((service, type_), 0),
            }
            for service, type_ in sorted(changed)
        ]
        if rows:
            _COUNT.run(connection, rows)

    def noted(self, changed: Collection[Owner]) -> None:
        """Do nothing: see `note`."""

    def submitted(self, service: str, day: int) -> int:
        """Return the sum of what all collectors have stored."""
        total = sa.func.coalesce(sa.func.sum(CHANGES.c.submitted), 0)
        query = sa.select(total).where(CHANGES.c.service == service, CHANGES.c.day == day)
        with self._reading() as connection:
            return int(connection.execute(query).scalar_one())

    def drop_old(self, connection: sa.Connection) -> None:
        """Drop the rows of collectors that have changed nothing for a day, for good or for a while.

        This is a change of its own, or the version could be one that it was before.
        """
        yesterday = time.time_ns() // (_DAY_SECONDS * 10**9) - 1
        old = sa.delete(CHANGES).where(CHANGES.c.day < yesterday).returning(CHANGES.c.service, CHANGES.c.type)
        self.note(connection, {(service, type_) for service, type_ in connection.execute(old)}, {})
