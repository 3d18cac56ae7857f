"""Alembic runs this file to connect: here, to the connection whose transaction the catalog has begun."""

from __future__ import annotations

from alembic import context

from pgo_collector.catalog.migrations import VERSIONS
from pgo_collector.catalog.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSIONS.name,
)
context.run_migrations()
