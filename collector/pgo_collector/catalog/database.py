"""Database: the seam between the catalog and what holds its tables, a file of SQLite or a PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa

from pgo_collector.catalog.leases import Leases

# A service and type.
Owner = tuple[str, str]


class Changes(Protocol):
    """Counts the changes of the blobs of each service and type, and the profiles that come.

    What was read before is known to be old by the version of its service and type.
    """

    def version(self, service: str, type_: str) -> Hashable:
        """Return the version of a service's and type's blobs: another one after each change of them.

        Ask for it before you read the blobs: if they change meanwhile, what was read is of an old version.
        """

    def note(self, connection: sa.Connection, changed: Collection[Owner], new: Mapping[Owner, int]) -> None:
        """Note a change at the end of its transaction, and how many profiles are new of each."""

    def noted(self, changed: Collection[Owner]) -> None:
        """Note that the transaction of a change has ended, whether or not it was committed."""

    def submitted(self, service: str, day: int) -> int | None:
        """Return how many profiles of a service were stored on a day, in days since 1970; None if unknown."""

    def drop_old(self, connection: sa.Connection) -> None:
        """Drop what collectors noted that have changed nothing for a day."""


class Database(Protocol):
    """Store of the catalog's tables; `str` of it says where it is. Constructing one opens nothing.

    A server calls `open` first. Others only read, with `looking`, after `is_there`; so do they with `reading`
    if the tables are of this version. Methods block. Within `reading`, `writing` and `looking`, errors of the
    driver become SQLAlchemy's.
    """

    @property
    def gather_seconds(self) -> float:
        """How long a transaction of submits waits for those that are being validated."""

    @property
    def is_alone(self) -> bool:
        """True if no other collector uses the catalog: from `open` until `share`, or always."""

    @property
    def changes(self) -> Changes:
        """The versions of blobs."""

    @property
    def leases(self) -> Leases:
        """The leases of the collectors that use the catalog."""

    def damage(self) -> str | None:
        """Return the damage that was found in it and is still there, with what repairs it.

        Blocks. Raises SQLAlchemyError.
        """

    @property
    def repair(self) -> str:
        """Return how to repair an unreadable catalog, for messages."""

    def open(self) -> None:
        """Make the tables those of this version: by steps, or by replacing them.

        Raises CatalogInUse if another process has the catalog to itself, CatalogUnreachable if the database
        is down, and CatalogUnreadable. It may be called again after the first two.
        """

    def share(self) -> None:
        """Let other collectors in, if several may use the catalog. Raises SQLAlchemyError."""

    def serialize(self, connection: sa.Connection, key: str) -> None:
        """Have other transactions wait that ask for the same key, until this one has ended."""

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """Begin a transaction that reads, and sees the tables as they are at one moment."""

    def writing(self) -> AbstractContextManager[sa.Connection]:
        """Begin a transaction that writes; only one thread at a time may."""

    def looking(self) -> AbstractContextManager[sa.Connection]:
        """Open a connection of its own, to read what another process may have open."""

    def is_there(self) -> bool:
        """Return whether there is anything to look at. Raises SQLAlchemyError."""

    def check(self) -> None:
        """Check that everything is as it was written. Raises CatalogUnreadable."""

    def clear(self) -> None:
        """Replace all tables but `KEPT`, which can't be rebuilt from the blobs, by empty ones.

        Raises CatalogUnreadable.
        """

    def check_copyable(self) -> None:
        """Raise BackupUnusable if `copy` can't copy it."""

    def copy(self, path: Path) -> None:
        """Copy the tables as they are at one moment to a file of SQLite. Raises SQLAlchemyError."""

    def close(self) -> None:
        """Close all connections."""
