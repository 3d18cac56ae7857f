"""Checks of the catalog: it must be of this version, and have the same blobs as the storage."""

from __future__ import annotations

import time
from collections.abc import Iterator

import sqlalchemy as sa

from pgo_collector.blobs.storage import Storage, Stored
from pgo_collector.catalog.database import Database
from pgo_collector.catalog.migrations import VERSION, Version, stored_version
from pgo_collector.catalog.stored_rows import blob_rows
from pgo_collector.checks import Finding
from pgo_collector.errors import StorageFails
from pgo_collector.model.series import BLOB_SUFFIX
from pgo_collector.store.store import reason_of

_SETTLED_SECONDS = 60
_SIZES = """
    SELECT coalesce(sum(size + inputs_size) FILTER (WHERE inputs_size = 0), 0),
           coalesce(sum(size + inputs_size) FILTER (WHERE inputs_size > 0), 0)
    FROM blobs WHERE live
"""
_COUNTS = "SELECT count(*) FILTER (WHERE live), count(*) FROM blobs"


def stored_bytes(catalog: Database) -> dict[str, int]:
    """Return the bytes of `single` and of `combined` profiles; an empty dict if the catalog can't be read."""
    try:
        with catalog.looking() as connection:
            single, combined = connection.exec_driver_sql(_SIZES).one()
    except sa.exc.SQLAlchemyError:
        return {}
    return {"single": single, "combined": combined}


def check_catalog(catalog: Database, blobs: Storage) -> Iterator[Finding]:
    """Check the catalog of the blobs in a storage. This changes nothing, and works while a server runs."""
    try:
        if not catalog.is_there():
            yield _nothing(blobs)
            return
        with catalog.looking() as connection:
            version = stored_version(connection)
            yield _version(version)
            if version.is_usable:
                yield _agreement(connection, blobs)
    except StorageFails as error:
        yield Finding("blobs", "fails", str(error), "see PGOF_STORAGE")
    except sa.exc.SQLAlchemyError as error:
        yield Finding("catalog", "fails", f"{catalog}: {reason_of(error)}", catalog.repair)


def _nothing(blobs: Storage) -> Finding:
    if next(_stored(blobs), None) is None:
        return Finding("catalog", "ok", "there is none, and there are no blobs; a start makes it")
    fix = "nothing; the start takes longer, since it reads all blobs"
    return Finding("catalog", "warning", "there is none; at the start it is made from the blobs", fix)


def _version(version: Version) -> Finding:
    if version.major > VERSION.major:
        fix = "run that version; this one rebuilds a file of SQLite from the blobs, and refuses PostgreSQL's"
        return Finding("version", "fails", "a newer version of pgo-collector uses the data folder", fix)
    if version < VERSION:
        fix = "nothing; the next start may take longer, since it updates the catalog or rebuilds it"
        return Finding("version", "warning", "the catalog is an older version's", fix)
    return Finding("version", "ok", f"the tables of the catalog have version {version}")


def _agreement(connection: sa.Connection, blobs: Storage) -> Finding:
    """Compare the catalog with the stored blobs.

    The numbers are compared first. They differ for a moment in every submit; then the names are compared.
    """
    live, every = connection.exec_driver_sql(_COUNTS).one()
    files = sum(1 for _ in _stored(blobs))
    missing, unknown = set[str](), set[str]()
    if not live <= files <= every:
        missing = _missing(connection, blobs) & _missing(connection, blobs)
        settled = {of.name for of in _stored(blobs) if _is_settled(of)}
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


def _missing(connection: sa.Connection, blobs: Storage) -> set[str]:
    """Return the live blobs that aren't stored.

    A blob that is just being deleted is missing from the answer to a second call.
    """
    there = {of.name for of in _stored(blobs)}
    return {row.name for row in blob_rows(connection) if row.live} - there


def _is_settled(blob: Stored) -> bool:
    """Return whether a blob has been there for longer than it takes to count it."""
    return time.time() - blob.written_nanos / 10**9 > _SETTLED_SECONDS


def _stored(blobs: Storage) -> Iterator[Stored]:
    """Yield all stored blobs."""
    return (of for of in blobs.objects() if of.name.endswith(BLOB_SUFFIX))
