"""Merges have a checksum of their file. They are a cache, so the table is replaced by an empty one.

The oldest catalogs of version 4 were made before there were events, and have no table for them.
"""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "5.0"
down_revision = "4.0"


def upgrade() -> None:
    """Make the tables of version 5."""
    there = {*sa.inspect(op.get_bind()).get_table_names()}
    if "merges" in there:
        op.drop_table("merges")
    op.create_table(
        "merges",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("fingerprint", sa.Text, nullable=False, unique=True),
        sa.Column("etag", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("left_out", sa.Text, nullable=False),
    )
    if "made" not in there:
        made = op.create_table("made", sa.Column("at_nanos", sa.BigInteger, primary_key=True))
        op.bulk_insert(made, [{"at_nanos": time.time_ns()}])
    if "outbox" not in there:
        op.create_table(
            "outbox",
            sa.Column("number", sa.Integer, primary_key=True),
            sa.Column("event", sa.Text, nullable=False),
            sa.Column("created_nanos", sa.BigInteger, nullable=False),
            sa.Column("body", sa.Text, nullable=False),
            sa.Column("attempts", sa.Integer, nullable=False),
            sa.Column("due_nanos", sa.BigInteger, nullable=False, index=True),
        )
