"""The tables of the catalog."""

from __future__ import annotations

import sqlalchemy as sa

from pgo_collector.model.times import DAY_NANOS

METADATA = sa.MetaData()

SERIES = sa.Table(
    "series",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("service", sa.Text, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("labels", sa.Text, nullable=False),
    # Whether a roll-up dropped labels, so that only ORIGINS tell which there were.
    sa.Column("rolled_up", sa.Boolean, nullable=False),
    sa.UniqueConstraint("service", "type", "labels"),
)

# The labels again, one a row, to be looked for.
LABELS = sa.Table(
    "labels",
    METADATA,
    sa.Column("series_id", sa.ForeignKey("series.id"), primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    sa.Index("labels_value", "key", "value", "series_id"),
)

BLOBS = sa.Table(
    "blobs",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("series_id", sa.ForeignKey("series.id"), nullable=False),
    sa.Column("time_nanos", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    # The time of the last profile inside; of a blob that isn't a combined one, its own.
    sa.Column("end_nanos", sa.BigInteger, nullable=False),
    sa.Column("duration_nanos", sa.BigInteger, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("samples", sa.BigInteger, nullable=False),
    # The size of the .inputs beside it, and so 0 unless the blob is a combined one.
    sa.Column("inputs_size", sa.BigInteger, nullable=False),
    sa.Column("live", sa.Boolean, nullable=False),
    # Sums of these tell sets of blobs apart: see `Catalog.fingerprint`.
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

# With the value spelled out, SQLite looks for it in the index, and for the time that comes after it there.
IS_LIVE = BLOBS.c.live == sa.true()

# As the index has it: SQLite takes one for a part of the rows only where it reads the same words.
IS_COMBINED = BLOBS.c.inputs_size > sa.text("0")

# The number of a blob's day. SQLite rounds a quotient towards 0, which is up before 1970.
_IN_DAY = (BLOBS.c.time_nanos % DAY_NANOS + DAY_NANOS) % DAY_NANOS
DAY = (BLOBS.c.time_nanos - _IN_DAY) // sa.literal(DAY_NANOS)

# Of a blob that a roll-up made of several series, dropping labels: the series that its profiles were sent to.
ORIGINS = sa.Table(
    "origins",
    METADATA,
    sa.Column("blob_id", sa.ForeignKey("blobs.id"), primary_key=True),
    sa.Column("series_id", sa.ForeignKey("series.id"), primary_key=True),
    sa.Index("origins_series", "series_id", "blob_id"),
)

# Every profile that was ever answered for, by its name, and the one live blob that counts it now.
PROFILES = sa.Table(
    "profiles",
    METADATA,
    sa.Column("series_id", sa.ForeignKey("series.id"), primary_key=True),
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("time_nanos", sa.BigInteger, primary_key=True),
    sa.Column("blob_id", sa.ForeignKey("blobs.id"), nullable=False, index=True),
)

# What merged/ holds: merges in the forms that were asked for, by the fingerprint of both.
MERGES = sa.Table(
    "merges",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("fingerprint", sa.Text, nullable=False, unique=True),
    sa.Column("etag", sa.Text, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("left_out", sa.Text, nullable=False),
)

# When these tables were made: what was stored before then is in them since they were filled from the blobs.
MADE = sa.Table("made", METADATA, sa.Column("at_nanos", sa.BigInteger, primary_key=True))

# Of the tables above; to be raised with every change of one of them. They are then made anew from the blobs.
VERSION = 5
# Those that version 5 has otherwise than version 4, and that are only a cache: the others stay.
CHANGED_SINCE_4 = ("merges",)

# Events that wait to be delivered. No blob tells of them, so this one stays when the others are made anew.
OUTBOX = sa.Table(
    "outbox",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("event", sa.Text, nullable=False),
    sa.Column("created_nanos", sa.BigInteger, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("due_nanos", sa.BigInteger, nullable=False, index=True),
)
