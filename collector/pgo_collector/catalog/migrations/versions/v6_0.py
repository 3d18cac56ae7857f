"""The tables of release 1.0.0. No step leads to them."""

from __future__ import annotations

revision = "6.0"
down_revision = None


def upgrade() -> None:
    """Do nothing: the tables are there."""
