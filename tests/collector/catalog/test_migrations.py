"""Versions of the catalog's tables: steps from older ones, and newer ones that are used as they are."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from pgo_collector.catalog import migrations
from pgo_collector.catalog.migrations import VERSION, VERSIONS
from pgo_collector.catalog.tables import METADATA

from tests.constants import CLAIM
from tests.faults.stacks import profile_of, tally
from tests.server import Server

MADE_ANEW = "catalog tables replaced"
# What a step to a newer minor version may do.
ADDED = (
    "ALTER TABLE blobs ADD COLUMN origin TEXT",
    "ALTER TABLE series ADD COLUMN place INTEGER DEFAULT 0 NOT NULL",
    "CREATE TABLE added (name TEXT PRIMARY KEY)",
    "CREATE INDEX blobs_size ON blobs (size)",
)


def differences(connection: sa.Connection) -> list[object]:
    """Return how the tables differ from what they are to be."""
    context = MigrationContext.configure(connection, opts={"version_table": VERSIONS.name})
    return list(compare_metadata(context, METADATA))


def version(server: Server) -> str:
    with server.catalog() as catalog:
        return str(catalog.execute(sa.select(VERSIONS)).scalar_one())


def set_version(server: Server, text: str) -> None:
    with server.catalog() as catalog:
        catalog.execute(sa.update(VERSIONS).values(version_num=text))


def test_a_new_catalog_has_the_tables_of_this_version(server: Server) -> None:
    assert version(server) == str(VERSION)
    with server.catalog() as catalog:
        assert differences(catalog) == []
        indexes = sa.inspect(catalog).get_indexes("blobs")
    where = f"{catalog.dialect.name}_where"
    partial = {index["name"] for index in indexes if where in index["dialect_options"]}
    assert partial == {"blobs_combined", "blobs_retired"}


@pytest.mark.sqlite
def test_the_file_of_a_version_before_the_first_release_is_made_anew(server: Server) -> None:
    assert server.submit(profile_of("a")).status_code == 204
    before = server.merge().content
    server.stop()
    set_version(server, "5.2")
    server.environment |= CLAIM
    server.start()
    assert server.events(MADE_ANEW)
    assert version(server) == str(VERSION)
    assert server.merge().content == before


def test_the_last_step_is_to_this_version() -> None:
    (folder,) = migrations.__path__
    assert ScriptDirectory(folder).get_current_head() == str(VERSION)


def test_steps_to_minor_versions_only_add() -> None:
    (folder,) = migrations.__path__
    for file in (Path(folder) / "versions").glob("v*_[1-9]*.py"):
        calls = {
            node.func.attr
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if isinstance(node.func.value, ast.Name) and node.func.value.id == "op"
        }
        assert calls <= {"create_table", "add_column", "create_index", "bulk_insert"}, file.name


def test_the_tables_of_a_newer_minor_version_are_used_as_they_are(server: Server) -> None:
    """As in a rolling update: the newer collector takes its step while this one serves, and then restarts."""
    for name in "ab":
        assert server.submit(profile_of(name)).status_code == 204
    with server.catalog() as catalog:
        for statement in ADDED:
            catalog.exec_driver_sql(statement)
    newer = f"{VERSION.major}.{VERSION.minor + 1}"
    set_version(server, newer)
    for name in "cd":
        assert server.submit(profile_of(name), query={"labels": "region=there"}).status_code == 204
    server.combine()
    assert tally(server.merge().content) == dict.fromkeys("abcd", 1)
    server.restart()
    assert server.submit(profile_of("e")).status_code == 204
    assert tally(server.merge().content) == dict.fromkeys("abcde", 1)
    assert not server.events(MADE_ANEW)
    assert version(server) == newer
    with server.catalog() as catalog:
        assert differences(catalog)


@pytest.mark.sqlite
@pytest.mark.long
def test_the_file_of_a_newer_major_version_is_made_anew(server: Server) -> None:
    assert server.submit(profile_of("a")).status_code == 204
    before = server.merge().content
    server.stop()
    set_version(server, f"{VERSION.major + 1}.0")
    server.environment |= CLAIM
    server.start()
    assert server.events(MADE_ANEW)
    assert version(server) == str(VERSION)
    assert server.merge().content == before
