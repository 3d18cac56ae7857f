"""The first version from which there are steps. No step leads to it: older catalogs are rebuilt."""

from __future__ import annotations

revision = "4.0"
down_revision = None


def upgrade() -> None:
    """Do nothing: the tables are there."""
