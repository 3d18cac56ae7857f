"""Read-only access to the catalog's file while a server may use it, for backups, checks and /readyz."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from pgo_collector.model.blob_names import BlobName, Identity
from pgo_collector.model.series import Series

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


@contextmanager
def reading_catalog(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a read-only connection. Raises sqlite3.Error, as may everything that is done with it."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        yield connection


def copy_catalog(path: Path, copy: Path) -> None:
    """Copy the catalog as it is at one moment to the file `copy`. Raises sqlite3.Error."""
    with reading_catalog(path) as source, closing(sqlite3.connect(copy)) as destination:
        source.backup(destination)
        destination.execute("PRAGMA journal_mode=DELETE")  # so that the copy is one file


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the version of the schema; 0 if there are no tables."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def made_nanos(connection: sqlite3.Connection) -> int:
    """Return what `Catalog.made_nanos` returns."""
    return int(connection.execute("SELECT at_nanos FROM made").fetchone()[0])


def counted_profiles(connection: sqlite3.Connection) -> int:
    """Return the number of counted profiles."""
    return int(connection.execute("SELECT count(*) FROM profiles").fetchone()[0])


def blob_rows(connection: sqlite3.Connection) -> Iterator[BlobRow]:
    """Yield every blob's row, as of one moment."""
    for service, type_, labels, time_nanos, digest, inputs_size, live in connection.execute(
        _STORED
    ).fetchall():
        name = BlobName(Series.parse(service, type_, labels), Identity(time_nanos, digest))
        yield BlobRow(str(name), digest, inputs_size, bool(live))
