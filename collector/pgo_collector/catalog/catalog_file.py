"""The catalog's file as it is now, read apart from the server that may be running on it."""

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


class Stored(NamedTuple):
    """A row of blobs; `name` is its path below blobs/."""

    name: str
    digest: str
    inputs_size: int
    live: bool


@contextmanager
def reading_catalog(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that changes nothing. Raises sqlite3.Error, as all that is done with it may."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        yield connection


def copy_catalog(path: Path, copy: Path) -> None:
    """Makes the file `copy`, which is what the catalog is at one moment. Raises sqlite3.Error."""
    with reading_catalog(path) as source, closing(sqlite3.connect(copy)) as destination:
        source.backup(destination)
        destination.execute("PRAGMA journal_mode=DELETE")  # so that it is one file


def version_of(connection: sqlite3.Connection) -> int:
    """Of its tables; 0 where there are none."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def made_nanos(connection: sqlite3.Connection) -> int:
    """See `Catalog.made_nanos`."""
    return int(connection.execute("SELECT at_nanos FROM made").fetchone()[0])


def counted_profiles(connection: sqlite3.Connection) -> int:
    """How many profiles are counted, by whichever blobs."""
    return int(connection.execute("SELECT count(*) FROM profiles").fetchone()[0])


def stored_blobs(connection: sqlite3.Connection) -> Iterator[Stored]:
    """Every row of blobs, as of one moment."""
    for service, type_, labels, time_nanos, digest, inputs_size, live in connection.execute(
        _STORED
    ).fetchall():
        name = BlobName(Series.parse(service, type_, labels), Identity(time_nanos, digest))
        yield Stored(str(name), digest, inputs_size, bool(live))
