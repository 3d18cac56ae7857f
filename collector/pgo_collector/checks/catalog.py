"""Checks of the catalog: that it is of this version, and counts what is there as a blob."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pgo_collector.catalog.catalog_file import reading_catalog, stored_blobs, version_of
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
    """What is stored of `single` profiles and of `combined` ones; nothing where that can't be known."""
    try:
        with reading_catalog(directory / CATALOG) as connection:
            return dict(zip(("single", "combined"), connection.execute(_SIZES).fetchone(), strict=True))
    except sqlite3.Error:
        return {}


def check_catalog(directory: Path) -> Iterator[Finding]:
    """All of it; changes nothing, and may be asked while a server runs."""
    path, blobs = directory / CATALOG, directory / "blobs"
    if not is_there(path):
        if next(_files(blobs), None) is None:
            yield Finding("catalog", "ok", "there is none, and nothing that it could be of")
        else:
            fix = "nothing, if so many profiles may be read once at the start"
            yield Finding("catalog", "warning", "there is none, and it is made from the blobs", fix)
        return
    try:
        with reading_catalog(path) as connection:
            version = version_of(connection)
            yield _version(version)
            if version == VERSION:
                yield _agreement(connection, blobs)
    except sqlite3.Error as error:
        fix = "stop the server; `pgo-collector reindex` makes it anew from the blobs"
        yield Finding("catalog", "fails", f"{path}: {error}", fix)


def _version(version: int) -> Finding:
    if version > VERSION:
        fix = "run that version; this one would make the catalog anew from the blobs"
        return Finding("version", "fails", "a newer version of pgo-collector uses the data folder", fix)
    if version < VERSION:
        fix = "nothing, if so many profiles may be read once at the start"
        return Finding("version", "warning", "the catalog is an older version's, and made anew", fix)
    return Finding("version", "ok", "the catalog is this version's")


def _agreement(connection: sqlite3.Connection, blobs: Path) -> Finding:
    """By numbers; only if they differ, as they also do for a moment in every submit, one by one."""
    live, every = connection.execute(_COUNTS).fetchone()
    files = sum(1 for _ in _files(blobs))
    missing, unknown = set[str](), set[str]()
    if not live <= files <= every:
        missing = _missing(connection, blobs) & _missing(connection, blobs)
        settled = {name for name in _files(blobs) if _is_settled(blobs / name)}
        unknown = settled - {row.name for row in stored_blobs(connection)}
    if missing:
        fix = "put them back from a backup, and restart"
        return Finding("catalog", "fails", f"{len(missing)} blobs are missing, such as {min(missing)}", fix)
    if unknown:
        fix = "restart: a start takes them in, or says why not"
        return Finding(
            "catalog", "warning", f"{len(unknown)} blobs aren't in it, such as {min(unknown)}", fix
        )
    return Finding("catalog", "ok", f"{live} profiles, and the blobs of them")


def _missing(connection: sqlite3.Connection, blobs: Path) -> set[str]:
    """The live ones that have no file. One that is just being deleted is so no second time."""
    return {row.name for row in stored_blobs(connection) if row.live and not (blobs / row.name).exists()}


def _is_settled(blob: Path) -> bool:
    """Whether it has been there for longer than it takes to count it."""
    with suppress(FileNotFoundError):
        return time.time() - blob.stat().st_mtime > _SETTLED_SECONDS
    return False


def _files(blobs: Path) -> Iterator[str]:
    """The names of all blobs that there are."""
    for folder, _, files in os.walk(blobs):
        below = os.path.relpath(folder, blobs)
        for file in files:
            if file.endswith(BLOB_SUFFIX):
                yield f"{below}/{file}"
