"""Migrations: the steps by which Alembic makes this version's tables of those of an earlier version.

A version is two numbers, major.minor, and each is a revision of Alembic's, a file in `versions`. A step to a
new minor version only adds: tables, indexes, and columns that may be null or have a default in the database.
So collectors of one major version work side by side, and the older one may go on, or start, after the newer
one has added something: that is a rolling update. A table or column that is to be removed or renamed stays
unused for one minor version, and goes with the next major one, which no older collector opens.

A new or cleared catalog gets all tables at once, as `catalog.tables` says: see `create_tables`.
`stored_version` tells the version of the tables that are there, and `upgrade` takes the steps from it;
Alembic runs `env` to connect.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import sqlalchemy as sa

from pgo_collector.catalog.tables import MADE, METADATA


class Version(NamedTuple):
    """A version of the tables."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @property
    def is_usable(self) -> bool:
        """True if this collector can use tables of this version without a step."""
        return self.major == VERSION.major and self.minor >= VERSION.minor


# The version of the tables in `tables`. Raise it with every change there, and add the step to `versions`.
VERSION = Version(6, 0)
# The first version from which there are steps: the tables of release 1.0.0.
FIRST_VERSION = Version(6, 0)
# The version where there are no tables.
NO_VERSION = Version(0, 0)
# Alembic's table, with one row.
VERSIONS = sa.Table(
    "catalog_version",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="catalog_version_pkc"),
)


def stored_version(connection: sa.Connection) -> Version:
    """Return the version of the tables that Alembic knows; NO_VERSION if there are none."""
    if not sa.inspect(connection).has_table(VERSIONS.name):
        return NO_VERSION
    major, _, minor = str(connection.execute(sa.select(VERSIONS)).scalar_one()).partition(".")
    return Version(int(major), int(minor))


def note_version(connection: sa.Connection, version: Version) -> None:
    """Note the version of the tables that are there, without a step."""
    VERSIONS.create(connection, checkfirst=True)
    connection.execute(sa.delete(VERSIONS))
    connection.execute(sa.insert(VERSIONS).values(version_num=str(version)))


def upgrade(connection: sa.Connection) -> None:
    """Take all steps from the version of the tables to this one."""
    # They take a tenth of a second to import, and one start after an update needs them.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "pgo_collector.catalog:migrations")
    command.upgrade(config, "head")


def create_tables(connection: sa.Connection, *, checkfirst: bool) -> None:
    """Make the tables of this version, and note it; with `checkfirst`, only missing tables are made."""
    METADATA.create_all(connection, checkfirst=checkfirst)
    connection.execute(sa.insert(MADE).values(at_nanos=time.time_ns()))
    note_version(connection, VERSION)
