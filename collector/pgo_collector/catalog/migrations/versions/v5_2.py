"""Sessions end on the server, and retention knows when it last ran."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "5.2"
down_revision = "5.1"

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "ended_sessions",
        sa.Column("signature", _TEXT, primary_key=True),
        sa.Column("ends", sa.BigInteger, nullable=False),
    )
    op.create_table("retention", sa.Column("at_nanos", sa.BigInteger, primary_key=True, autoincrement=False))
