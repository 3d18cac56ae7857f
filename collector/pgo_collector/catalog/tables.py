"""The schema of the catalog: its tables and indexes, the same in SQLite and PostgreSQL.

Every change is a new version, and a step in `migrations`.
"""

from __future__ import annotations

import sqlalchemy as sa

from pgo_collector.model.times import DAY_NANOS

METADATA = sa.MetaData()

# Ids have 63 bits, which SQLite gives only to a column of this very type.
_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
# Texts are sorted by their bytes, as SQLite does.
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

SERIES = sa.Table(
    "series",
    METADATA,
    sa.Column("id", _ID, primary_key=True),
    sa.Column("service", _TEXT, nullable=False),
    sa.Column("type", _TEXT, nullable=False),
    sa.Column("labels", _TEXT, nullable=False),
    # Whether a roll-up dropped labels; ORIGINS then has the series with all of them.
    sa.Column("rolled_up", sa.Boolean, nullable=False),
    sa.UniqueConstraint("service", "type", "labels"),
)

# The labels of SERIES once more, one a row, for searching.
LABELS = sa.Table(
    "labels",
    METADATA,
    sa.Column("series_id", sa.ForeignKey("series.id"), primary_key=True),
    sa.Column("key", _TEXT, primary_key=True),
    sa.Column("value", _TEXT, nullable=False),
    sa.Index("labels_value", "key", "value", "series_id"),
)

BLOBS = sa.Table(
    "blobs",
    METADATA,
    sa.Column("id", _ID, primary_key=True),
    sa.Column("series_id", sa.ForeignKey("series.id"), nullable=False),
    sa.Column("time_nanos", sa.BigInteger, nullable=False),
    sa.Column("digest", _TEXT, nullable=False),
    # The time of the last profile inside a combined blob; of another blob, its own time.
    sa.Column("end_nanos", sa.BigInteger, nullable=False),
    sa.Column("duration_nanos", sa.BigInteger, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("samples", sa.BigInteger, nullable=False),
    # The size of the .inputs file; 0 unless the blob is a combined one.
    sa.Column("inputs_size", sa.BigInteger, nullable=False),
    sa.Column("live", sa.Boolean, nullable=False),
    # Their sums tell sets of blobs apart: see `read_state`.
    sa.Column("mark", sa.BigInteger, nullable=False),
    sa.Column("second_mark", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("series_id", "time_nanos", "digest"),
    sa.Index("blobs_live", "series_id", "live", "time_nanos", "mark", "second_mark"),
    sa.Index(
        "blobs_combined",
        "series_id",
        "live",
        "end_nanos",
        "time_nanos",
        sqlite_where=sa.text("inputs_size > 0"),
    ),
    sa.Index("blobs_retired", "live", sqlite_where=sa.text("live = 0")),
)


@sa.event.listens_for(BLOBS, "before_create")
def _select_for_postgresql(blobs: sa.Table, connection: sa.Connection, **_: object) -> None:
    """Say which rows the partial indexes have in PostgreSQL. SQLAlchemy imports its dialect for these words,
    which takes 2 MB of memory, so SQLite's tables do without.
    """
    if connection.dialect.name == "postgresql":
        conditions = {"blobs_combined": "inputs_size > 0", "blobs_retired": "NOT live"}
        for index in blobs.indexes:
            if index.name in conditions:
                index.dialect_kwargs["postgresql_where"] = sa.text(conditions[index.name])


# Written with the value, so that SQLite searches the index by it, and by the time, the next column there.
IS_LIVE = BLOBS.c.live == sa.true()

# Written as in the partial index: SQLite uses one only where the query has the same words.
IS_COMBINED = BLOBS.c.inputs_size > sa.text("0")


def floored(number: sa.ColumnElement[int], width: int) -> tuple[sa.ColumnElement[int], sa.ColumnElement[int]]:
    """Return the quotient of a division by `width`, rounded down, and its remainder.

    Databases round towards 0, which is up before 1970. No part of this leaves 64 bits, which PostgreSQL
    refuses.
    """
    by = sa.literal(width)
    left = number % by
    return number // by - sa.case((left < 0, 1), else_=0), sa.case((left < 0, left + by), else_=left)


# The day of a blob in days since 1970.
DAY, _ = floored(BLOBS.c.time_nanos, DAY_NANOS)

# For a blob from a roll-up that dropped labels: the series to which the profiles inside were submitted.
ORIGINS = sa.Table(
    "origins",
    METADATA,
    sa.Column("blob_id", sa.ForeignKey("blobs.id"), primary_key=True),
    sa.Column("series_id", sa.ForeignKey("series.id"), primary_key=True),
    sa.Index("origins_series", "series_id", "blob_id"),
)

# Every counted profile by its name, and the one live blob that counts it now.
PROFILES = sa.Table(
    "profiles",
    METADATA,
    sa.Column("series_id", sa.ForeignKey("series.id"), primary_key=True),
    sa.Column("digest", _TEXT, primary_key=True),
    sa.Column("time_nanos", sa.BigInteger, primary_key=True),
    sa.Column("blob_id", sa.ForeignKey("blobs.id"), nullable=False, index=True),
)

# When these tables were made. Profiles that were stored before then are here because of a rebuild.
MADE = sa.Table("made", METADATA, sa.Column("at_nanos", sa.BigInteger, primary_key=True, autoincrement=False))

# Events that wait to be delivered. They can't be rebuilt from the blobs, so this table survives a rebuild.
OUTBOX = sa.Table(
    "outbox",
    METADATA,
    sa.Column("number", _ID, primary_key=True),
    sa.Column("event", _TEXT, nullable=False),
    sa.Column("created_nanos", sa.BigInteger, nullable=False),
    sa.Column("body", _TEXT, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("due_nanos", sa.BigInteger, nullable=False, index=True),
)

# Sessions of the pages that ended before their time, by signature, until that time in seconds since 1970. As
# they can't be rebuilt either, this table survives a rebuild, too. See `ended_sessions`.
ENDED_SESSIONS = sa.Table(
    "ended_sessions",
    METADATA,
    sa.Column("signature", _TEXT, primary_key=True),
    sa.Column("ends", sa.BigInteger, nullable=False),
)

# When retention last ran by a clock that it trusts, in ns since 1970: one row, or none. See `upkeep.clock`.
RETENTION = sa.Table(
    "retention", METADATA, sa.Column("at_nanos", sa.BigInteger, primary_key=True, autoincrement=False)
)

# The tables that a rebuild from the blobs leaves as they are.
KEPT = (OUTBOX, ENDED_SESSIONS, RETENTION)

# Leases: rights to do something that only one collector may do at a time. See `leases`.
LEASES = sa.Table(
    "leases",
    METADATA,
    sa.Column("name", _TEXT, primary_key=True),
    # A random number for each time that it was taken; 0 if nobody has it.
    sa.Column("token", sa.BigInteger, nullable=False),
    # By the database's clock, in ms since 1970: when it ends unless it is renewed, and until when the one who
    # has it must not delete objects.
    sa.Column("ends_ms", sa.BigInteger, nullable=False),
    sa.Column("deletes_ms", sa.BigInteger, nullable=False),
)

# The changes that each collector has made to the blobs of a service and type, and how many of its profiles it
# stored on a day: see `database.Changes`.
CHANGES = sa.Table(
    "changes",
    METADATA,
    sa.Column("service", _TEXT, primary_key=True),
    sa.Column("type", _TEXT, primary_key=True),
    sa.Column("collector", sa.BigInteger, primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    # In days since 1970.
    sa.Column("day", sa.BigInteger, nullable=False),
    sa.Column("submitted", sa.BigInteger, nullable=False),
)
