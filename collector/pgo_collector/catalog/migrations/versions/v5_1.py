"""Several collectors share a catalog: what they agree on has two tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "5.1"
down_revision = "5.0"

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "leases",
        sa.Column("name", _TEXT, primary_key=True),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("ends_ms", sa.BigInteger, nullable=False),
        sa.Column("deletes_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "changes",
        sa.Column("service", _TEXT, primary_key=True),
        sa.Column("type", _TEXT, primary_key=True),
        sa.Column("collector", sa.BigInteger, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("day", sa.BigInteger, nullable=False),
        sa.Column("submitted", sa.BigInteger, nullable=False),
    )
