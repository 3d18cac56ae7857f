"""Read the catalog for backups, checks and /readyz with `Database.looking`, beside a running server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import sqlalchemy as sa

from pgo_collector.catalog.tables import MADE
from pgo_collector.model.series import BlobName, Identity, Series

_STORED = """
    SELECT service, type, labels, time_nanos, digest, inputs_size, live
    FROM blobs JOIN series ON series.id = series_id
"""


class BlobRow(NamedTuple):
    """A blob's row; `name` is its path below blobs/, `digest` in hex, `inputs_size` in bytes."""

    name: str
    digest: str
    inputs_size: int
    live: bool


def made_nanos(connection: sa.Connection) -> int:
    """Return what `Catalog.made_nanos` returns."""
    return int(connection.execute(sa.select(MADE.c.at_nanos)).scalar_one())


def counted_profiles(connection: sa.Connection) -> int:
    """Return the number of counted profiles."""
    return int(connection.exec_driver_sql("SELECT count(*) FROM profiles").scalar_one())


def blob_rows(connection: sa.Connection) -> Iterator[BlobRow]:
    """Yield every blob's row, as of one moment."""
    found = connection.exec_driver_sql(_STORED).all()
    for service, type_, labels, time_nanos, digest, inputs_size, live in found:
        name = BlobName(Series.parse(service, type_, labels), Identity(time_nanos, digest))
        yield BlobRow(str(name), digest, inputs_size, bool(live))
