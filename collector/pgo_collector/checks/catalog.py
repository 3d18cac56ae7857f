"""Checks of the catalog: it must be of this version, and have the same blobs as the disk."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pgo_collector.catalog.catalog_file import blob_rows, reading_catalog, schema_version
from pgo_collector.catalog.database import REINDEX
from pgo_collector.catalog.tables import VERSION
from pgo_collector.checks import Finding
from pgo_collector.checks.data_folder import is_there
from pgo_collector.model.blob_names import BLOB_SUFFIX
from pgo_collector.store.folder import CATALOG

_SETTLED_SECONDS = 60
_SIZES = """
    SELECT coalesce(sum(size + inputs_size) FILTER (WHERE inputs_size = 0), 0),
           coalesce(sum(size + inputs_size) FILTER (WHERE inputs_size > 0), 0)
    FROM blobs WHERE live
"""
_COUNTS = "SELECT count(*) FILTER (WHERE live), count(*) FROM blobs"


def stored_bytes(directory: Path) -> dict[str, int]:
    """Return the bytes of `single` and of `combined` profiles; an empty dict if the catalog can't be read."""
    try:
        with reading_catalog(directory / CATALOG) as connection:
            return dict(zip(("single", "combined"), connection.execute(_SIZES).fetchone(), strict=True))
    except sqlite3.Error:
        return {}


def check_catalog(directory: Path) -> Iterator[Finding]:
    """Check the catalog. This changes nothing, and works while a server runs."""
    path, blobs = directory / CATALOG, directory / "blobs"
    if not is_there(path):
        if next(_files(blobs), None) is None:
            yield Finding("catalog", "ok", "there is none, and there are no blobs; a start makes it")
        else:
            fix = "nothing; the start takes longer, since it reads all blobs"
            yield Finding("catalog", "warning", "there is none; at the start it is made from the blobs", fix)
        return
    try:
        with reading_catalog(path) as connection:
            version = schema_version(connection)
            yield _version(version)
            if version == VERSION:
                yield _agreement(connection, blobs)
    except sqlite3.Error as error:
        yield Finding("catalog", "fails", f"{path}: {error}", REINDEX)


def _version(version: int) -> Finding:
    if version > VERSION:
        fix = "run that version; this one would rebuild the catalog from the blobs"
        return Finding("version", "fails", "a newer version of pgo-collector uses the data folder", fix)
    if version < VERSION:
        fix = "nothing; the next start may take longer, since it updates the catalog or rebuilds it"
        return Finding("version", "warning", "the catalog is an older version's", fix)
    return Finding("version", "ok", "the catalog is this version's")


def _agreement(connection: sqlite3.Connection, blobs: Path) -> Finding:
    """Compare the catalog with the blobs on disk.

    The numbers are compared first. They differ for a moment in every submit; then the names are compared.
    """
    live, every = connection.execute(_COUNTS).fetchone()
    files = sum(1 for _ in _files(blobs))
    missing, unknown = set[str](), set[str]()
    if not live <= files <= every:
        missing = _missing(connection, blobs) & _missing(connection, blobs)
        settled = {name for name in _files(blobs) if _is_settled(blobs / name)}
        unknown = settled - {row.name for row in blob_rows(connection)}
    if missing:
        fix = "restore them from a backup, and restart"
        return Finding("catalog", "fails", f"{len(missing)} blobs are missing, such as {min(missing)}", fix)
    if unknown:
        fix = "restart: a start adds them, or logs why it can't"
        return Finding(
            "catalog", "warning", f"{len(unknown)} blobs aren't in it, such as {min(unknown)}", fix
        )
    return Finding("catalog", "ok", f"{live} profiles, and all their blobs")


def _missing(connection: sqlite3.Connection, blobs: Path) -> set[str]:
    """Return the live blobs without a file. One that is just being deleted isn't there at a second call."""
    return {row.name for row in blob_rows(connection) if row.live and not (blobs / row.name).exists()}


def _is_settled(blob: Path) -> bool:
    """Return whether a blob has been there for longer than it takes to count it."""
    with suppress(FileNotFoundError):
        return time.time() - blob.stat().st_mtime > _SETTLED_SECONDS
    return False


def _files(blobs: Path) -> Iterator[str]:
    """Yield the names of all blobs on disk."""
    for folder, _, files in os.walk(blobs):
        below = os.path.relpath(folder, blobs)
        for file in files:
            if file.endswith(BLOB_SUFFIX):
                yield f"{below}/{file}"
