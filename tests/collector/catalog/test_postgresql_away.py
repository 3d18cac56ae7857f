"""A PostgreSQL that isn't there: what is told of it, and what it would be asked. These tests need none."""

from __future__ import annotations

import json
import re
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlalchemy as sa
from pgo_collector.catalog.database import Database
from pgo_collector.catalog.faults import may_be_committed
from pgo_collector.catalog.statements import (
    PreparedInsert,
    PreparedQuery,
    fits_pattern,
    is_found,
    is_one_of,
)
from pgo_collector.errors import (
    BackupUnusable,
    CatalogBusy,
    CatalogFails,
    CatalogGone,
    CatalogSlow,
    CatalogUnavailable,
    CatalogUnreadable,
)
from pgo_collector.settings import Settings
from pgo_collector.store.store import catalog_fails, database_of
from sqlalchemy.dialects import postgresql

pytestmark = pytest.mark.any_store

# SQLAlchemy hasn't typed its constructor.
DIALECT = cast("sa.Dialect", postgresql.dialect())  # type: ignore[no-untyped-call]
NUMBERS = sa.Table("numbers", sa.MetaData(), sa.Column("id", sa.BigInteger), sa.Column("name", sa.Text))


def at(port: int, storage: str = "") -> Database:
    """Return the catalog in a PostgreSQL at a port."""
    catalog = f"postgresql://pgo:secret@127.0.0.1:{port}/profiles"
    return database_of(Settings(catalog=catalog, storage=storage, catalog_connect_seconds=1))


@pytest.mark.parametrize("storage", ["", "s3://profiles/pgo"], ids=["alone", "shared"])
def test_one_that_is_gone_is_named_without_its_password(storage: str) -> None:
    database = at(1, storage)
    for act in (database.open, database.clear):
        with pytest.raises(CatalogUnreadable, match="in PostgreSQL, profiles at") as told:
            act()
        assert "start PostgreSQL" in str(told.value)
        assert "secret" not in str(told.value)
    with pytest.raises(sa.exc.OperationalError) as raised, database.looking():
        pass
    assert isinstance(catalog_fails(raised.value), CatalogGone)
    assert may_be_committed(raised.value)


def test_collectors_that_share_one_that_is_gone_get_no_lease() -> None:
    database = at(1, "s3://profiles/pgo")
    with pytest.raises(sa.exc.OperationalError):
        database.leases.take("shop/cpu")
    with pytest.raises(sa.exc.OperationalError):
        database.changes.version("shop", "cpu")
    with pytest.raises(sa.exc.OperationalError):
        database.changes.submitted("shop", 1)


def test_one_that_does_not_answer_is_slow() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        database = at(silent.getsockname()[1])
        with pytest.raises(sa.exc.OperationalError) as raised, database.writing():
            pass
    refusal = catalog_fails(raised.value)
    assert isinstance(refusal, CatalogSlow)
    assert "PGOF_CATALOG_CONNECT_SECONDS" in str(refusal)


@pytest.mark.parametrize(
    ("state", "kind", "words"),
    [
        ("08006", CatalogGone, "can't be reached"),
        ("42P01", CatalogGone, "stop all collectors and start one"),
        ("53300", CatalogSlow, "PGOF_CATALOG_CONNECTIONS"),
        ("55006", CatalogFails, "another pgo-collector writes it"),
        ("40001", CatalogBusy, "try again"),
        ("53100", CatalogFails, "the disk is full"),
    ],
)
def test_each_of_its_faults_is_told_by_its_code(state: str, kind: type[CatalogFails], words: str) -> None:
    error = Exception("the disk is full")
    error.sqlstate = state  # type: ignore[attr-defined] # as psycopg's have it
    refusal = catalog_fails(sa.exc.OperationalError("INSERT", {}, error))
    assert type(refusal) is kind
    assert words in str(refusal)


def test_a_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pgo_collector.catalog.postgresql", None)
    with pytest.raises(CatalogUnavailable, match=re.escape("install pgo-collector[postgresql], or unset it")):
        at(1)


def test_it_is_backed_up_by_its_own_tools(tmp_path: Path) -> None:
    with pytest.raises(BackupUnusable, match="pg_dump"):
        at(1).copy(tmp_path / "copy")


class Driver:
    """Stands for psycopg's connection: keeps what is run, and answers with rows."""

    def __init__(self, *rows: tuple[Any, ...]) -> None:
        self._rows = rows
        self.ran: list[tuple[str, Any]] = []
        fake = SimpleNamespace(dialect=DIALECT, connection=SimpleNamespace(driver_connection=self))
        self.connection = cast("sa.Connection", fake)

    def execute(self, text: str, values: object) -> list[tuple[Any, ...]]:
        self.ran.append((" ".join(text.split()), values))
        return [*self._rows]


def test_many_runs_of_a_query_are_one_statement_and_each_gets_its_rows() -> None:
    query = PreparedQuery(
        sa.select(NUMBERS.c.id).where(NUMBERS.c.name == sa.bindparam("wanted", type_=sa.Text))
    )
    driver = Driver((1, 7), (0, 5), (1, 8))
    found = query.every(driver.connection, [{"wanted": "a"}, {"wanted": "b"}, {"wanted": "c"}])
    assert found == [[(5,)], [(7,), (8,)], []]
    ((text, values),) = driver.ran
    assert text == (
        "SELECT one.number, found.id FROM json_to_recordset(CAST(%(all_values)s AS JSON))"
        " AS one (number BIGINT, wanted TEXT), LATERAL (SELECT numbers.id AS id FROM numbers"
        " WHERE numbers.name = one.wanted LIMIT ALL OFFSET 0) AS found"
    )
    assert json.loads(values["all_values"]) == [
        {"number": number, "wanted": name} for number, name in enumerate("abc")
    ]
    assert query.every(driver.connection, []) == []


def test_many_runs_of_an_insert_are_one_statement() -> None:
    insert = PreparedInsert(NUMBERS, "id", "name", then=lambda insert: insert.on_conflict_do_nothing())
    driver = Driver()
    insert.run(driver.connection, {"id": 1, "name": "a"})
    insert.run(driver.connection, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    (one, _), (every, values) = driver.ran
    assert (
        one
        == "INSERT INTO numbers (id, name) VALUES (%(id)s::BIGINT, %(name)s::VARCHAR) ON CONFLICT DO NOTHING"
    )
    assert every == (
        "INSERT INTO numbers (id, name) SELECT one.id, one.name FROM json_to_recordset("
        "CAST(%(all_values)s AS JSON)) AS one (number BIGINT, id BIGINT, name TEXT) ON CONFLICT DO NOTHING"
    )
    assert len(json.loads(values["all_values"])) == 2


@pytest.mark.parametrize(
    ("condition", "text", "values"),
    [
        (
            is_one_of(NUMBERS.c.id, [1, 2]),
            "numbers.id IN (SELECT value::BIGINT FROM json_array_elements_text(?::JSON))",
            ["[1, 2]"],
        ),
        (
            fits_pattern(NUMBERS.c.name, ["a_b*"]),
            "numbers.name LIKE ANY (ARRAY(SELECT json_array_elements_text(?::JSON)))",
            [r'["a\\_b%"]'],
        ),
        (
            is_found(NUMBERS.c.id, sa.select(NUMBERS.c.id).where(NUMBERS.c.name == "a").correlate(None)),
            "numbers.id = ANY (ARRAY(SELECT numbers.id FROM numbers WHERE numbers.name = ?))",
            ["a"],
        ),
    ],
    ids=["ids", "patterns", "found"],
)
def test_conditions_are_said_so_that_an_index_is_searched(
    condition: sa.ColumnElement[bool], text: str, values: list[str]
) -> None:
    compiled = condition.compile(dialect=DIALECT)
    assert re.sub(r"%\(\w+\)s(::VARCHAR)?", "?", " ".join(str(compiled).split())) == text
    assert [value for value in compiled.params.values() if value in values] == values
