"""A catalog in PostgreSQL that is gone, slow or in use. The stage `shared` runs the other tests on one."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.postgresql import PostgreSQL
from pgo_collector.catalog.rows import add_profiles, read_counting
from pgo_collector.model.facts import Facts
from pgo_collector.model.profile_types import CPU
from pgo_collector.model.selection import Matcher, Selection
from pgo_collector.model.series import BlobName, Identity, Series

from tests.catalogs import Files, Schemas
from tests.collector.http.test_routes import assert_problem
from tests.faults.stacks import profile_of, tally
from tests.interop.postgres_cluster import MISSING, Cluster, Installation, installed_postgres
from tests.server import Installed, Server

pytestmark = [pytest.mark.exhaustive, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

HASTY = {"PGOF_CATALOG_CONNECT_SECONDS": "1", "PGOF_CATALOG_STATEMENT_SECONDS": "1"}


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    with installed_postgres() as installation:
        yield installation


@pytest.fixture
def cluster(installation: Installation) -> Iterator[Cluster]:
    with installation.running() as cluster:
        yield cluster


@contextmanager
def collector(home: Path, port: int, **settings: str) -> Iterator[Server]:
    """A collector with its catalog in PostgreSQL, which isn't running yet."""
    server = Server(home, HASTY | settings)
    server.catalogs = Schemas(port)
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
def stopped(cluster: Cluster, tmp_path: Path) -> Iterator[Server]:
    with collector(tmp_path / "home", cluster.port) as server:
        yield server


@pytest.fixture
def server(stopped: Server) -> Server:
    stopped.start()
    return stopped


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def fails(server: Server) -> dict[str, str]:
    """Return the parts that /readyz names, when its last answer is too old to be given again."""
    time.sleep(1.1)
    return dict(server.client.get("/readyz").json()["fails"])


def assert_refused(server: Server, word: str) -> None:
    """Check that requests are told to come again, and why."""
    for answer in (server.submit(profile_of("new")), server.merge(), server.ask("/v1/services")):
        assert_problem(answer, 503)
        assert answer.headers["Retry-After"] == "5"
        assert answer.json()["detail"].startswith(f"the catalog is {word}: ")


def test_a_database_that_is_gone_is_told_from_one_that_is_slow(
    installation: Installation, tmp_path: Path
) -> None:
    with collector(tmp_path / "home", installation.port) as server:
        with installation.running():
            server.start()
            assert server.submit(profile_of("a")).status_code == 204
            assert fails(server) == {}
        assert_refused(server, "gone")
        assert fails(server)["catalog"].startswith("the catalog is gone: ")
        assert str(installation.port) not in server.client.get("/readyz").text
        with installation.running():
            wait_until(lambda: not fails(server))
            for name in ("a", "b", "new"):
                assert server.submit(profile_of(name)).status_code == 204
            assert tally(server.merge().content) == {"a": 1, "b": 1, "new": 1}


def assert_waits(server: Server, reason: str) -> None:
    """Check that a server that starts says what it waits for, and lets no request wait for it."""
    server.listen()
    assert reason in server.wait_for_log("waiting for catalog")["reason"]
    assert server.client.get("/healthz").status_code == 200
    unready = server.client.get("/readyz")
    assert unready.status_code == 503
    assert unready.json()["fails"] == {"start": "waiting for the catalog, which can't be reached"}
    began = time.monotonic()
    for answer in (server.submit(profile_of("early")), server.merge()):
        assert_problem(answer, 503)
        assert answer.headers["Retry-After"] == "5"
        assert answer.json()["detail"].endswith("waiting for the catalog, which can't be reached")
    assert time.monotonic() - began < 20  # each would wait for so long for a start that goes on


def test_a_collector_that_starts_while_it_is_down_waits_for_it(
    installation: Installation, tmp_path: Path
) -> None:
    url = f"postgresql://postgres@127.0.0.1:{installation.port}/postgres"
    with collector(tmp_path / "home", installation.port, PGOF_CATALOG=url) as server:
        server.catalogs = Files()  # which asks no database for a schema
        assert_waits(server, "start PostgreSQL, let this user in, or correct PGOF_CATALOG")
        assert server.stop() == 0
        assert_waits(server, "start PostgreSQL")
        with installation.running():
            server.wait_for_log("serving")
            assert server.submit(profile_of("a")).status_code == 204
            assert fails(server) == {}
            assert tally(server.merge().content) == {"a": 1}
            assert len(server.events("waiting for catalog")) == 1  # it was asked each second


def test_a_database_that_is_not_made_yet_is_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    """So is one that refuses the user: libpq doesn't tell these from one that is down."""
    at = f"postgresql://postgres@127.0.0.1:{cluster.port}"
    with collector(tmp_path / "home", cluster.port, PGOF_CATALOG=f"{at}/later") as server:
        assert_waits(server, 'database "later" does not exist')
        with psycopg.connect(f"{at}/postgres", autocommit=True) as connection:
            connection.execute("CREATE DATABASE later")
        server.wait_for_log("serving")
        assert server.submit(profile_of("a")).status_code == 204


def test_a_database_that_is_killed_is_gone_until_it_is_back(
    installation: Installation, tmp_path: Path
) -> None:
    with collector(tmp_path / "home", installation.port) as server:
        with installation.running() as cluster:
            server.start()
            assert server.submit(profile_of("a")).status_code == 204
            cluster.send(signal.SIGKILL)
            assert_refused(server, "gone")
            assert fails(server)["catalog"].startswith("the catalog is gone: ")
            assert server.client.get("/healthz").status_code == 200
        with installation.running():
            wait_until(lambda: not fails(server))
            assert server.submit(profile_of("b")).status_code == 204
            assert tally(server.merge().content) == {"a": 1, "b": 1}


def test_a_database_whose_tables_are_locked_is_slow(server: Server) -> None:
    assert server.submit(profile_of("a")).status_code == 204
    with server.catalog() as catalog:
        catalog.exec_driver_sql("LOCK TABLE series, blobs, made")
        assert_refused(server, "slow")
        assert fails(server)["catalog"].startswith("the catalog is slow: ")
    assert fails(server) == {}
    assert server.submit(profile_of("new")).status_code == 204
    assert tally(server.merge().content) == {"a": 1, "new": 1}


def test_a_database_that_hangs_is_slow_and_no_request_waits_for_it(server: Server, cluster: Cluster) -> None:
    assert server.submit(profile_of("a")).status_code == 204
    with cluster.stopped():
        began = time.monotonic()
        assert_problem(server.submit(profile_of("b")), 503)
        assert_problem(server.merge(), 503)
        assert time.monotonic() - began < 30
        # At first its connections hang; once they are given up, so do new ones.
        for _ in range(4):
            failing = fails(server)
            assert {*failing} == {"catalog"}
            assert failing["catalog"].startswith("the catalog is slow: ")
    wait_until(lambda: not fails(server))
    assert server.submit(profile_of("b")).status_code == 204
    assert tally(server.merge().content) == {"a": 1, "b": 1}


def test_connections_that_the_database_ends_are_made_anew(server: Server) -> None:
    for name in "abc":
        with server.catalog() as catalog:
            catalog.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'pgo-collector'"
            )
        assert server.submit(profile_of(name)).status_code == 204
        assert tally(server.merge().content)[name] == 1


def test_one_collector_uses_a_catalog(server: Server, tmp_path: Path) -> None:
    url = server.variables["PGOF_CATALOG"]
    with collector(tmp_path / "other", 0, PGOF_CATALOG=url) as other:
        finished = other.run("serve")
        assert finished.returncode == 2
        assert "another pgo-collector uses it" in finished.stderr
        assert server.submit(profile_of("a")).status_code == 204
        server.kill()
        other.start()
        assert other.submit(profile_of("b")).status_code == 204


def test_the_tables_of_another_program_are_left_alone(stopped: Server) -> None:
    assert stopped.variables["PGOF_CATALOG"]
    with stopped.catalog() as catalog:
        catalog.exec_driver_sql("CREATE TABLE profiles (name TEXT)")
        catalog.exec_driver_sql("INSERT INTO profiles VALUES ('theirs')")
    for command in ("serve", "reindex"):
        finished = stopped.run(command)
        assert finished.returncode == 2
        assert "profiles" in finished.stderr
    with stopped.catalog() as catalog:
        assert catalog.exec_driver_sql("SELECT name FROM profiles").scalars().all() == ["theirs"]


def test_the_tables_of_a_newer_major_version_are_left_alone(server: Server) -> None:
    assert server.submit(profile_of("a")).status_code == 204
    server.stop()
    with server.catalog() as catalog:
        catalog.exec_driver_sql("UPDATE catalog_version SET version_num = '99.0'")
    finished = server.run("serve")
    assert finished.returncode == 2
    assert "a newer version of pgo-collector" in finished.stderr
    with server.catalog() as catalog:
        assert catalog.exec_driver_sql("SELECT count(*) FROM profiles").scalar_one() == 1


def test_a_database_that_cannot_hold_all_names_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    postgres = sa.create_engine(
        f"postgresql+psycopg://postgres@127.0.0.1:{cluster.port}/postgres", isolation_level="AUTOCOMMIT"
    )
    with postgres.connect() as connection:
        connection.exec_driver_sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    postgres.dispose()
    url = f"postgresql://postgres@127.0.0.1:{cluster.port}/latin"
    with collector(tmp_path / "home", cluster.port, PGOF_CATALOG=url) as server:
        finished = server.run("serve")
        assert finished.returncode == 2
        assert "its encoding is LATIN1" in finished.stderr


def test_a_database_that_cannot_be_reached_is_named_without_the_password(tmp_path: Path) -> None:
    url = "postgresql://me:sesame@127.0.0.1:1/somewhere"
    with collector(tmp_path / "home", 0, PGOF_CATALOG=url) as server:
        for command in ("reindex", "expired", "check"):
            finished = server.run(command)
            assert finished.returncode in {1, 2}
            assert "127.0.0.1" in finished.stderr + finished.stdout
            assert "sesame" not in finished.stderr + finished.stdout
            assert "Traceback" not in finished.stderr
        server.listen()
        assert "127.0.0.1" in server.wait_for_log("waiting for catalog")["reason"]
        assert "sesame" not in str(server.log)


def test_a_backup_is_refused_and_says_what_makes_one(server: Server, tmp_path: Path) -> None:
    finished = server.run("backup", str(tmp_path / "backup"))
    assert finished.returncode == 2
    assert "pg_dump" in finished.stderr
    assert not (tmp_path / "backup").exists()


def test_check_and_expired_look_beside_the_server(server: Server) -> None:
    assert server.submit(profile_of("a")).status_code == 204
    findings = json.loads(server.run("check", "--json").stdout)["findings"]
    (found,) = (of for of in findings if of["part"] == "catalog")
    assert (found["state"], found["detail"]) == ("ok", "1 profiles, and all their blobs")
    server.environment["PGOF_KEEP_DAYS"] = "1"
    assert len(server.run("expired").stdout.splitlines()) == 1
    server.stop()
    server.drop_catalog()
    findings = json.loads(server.run("check", "--json").stdout)["findings"]
    (found,) = (of for of in findings if of["part"] == "catalog")
    assert (found["state"], found["detail"]) == (
        "warning",
        "there is none; at the start it is made from the blobs",
    )


def test_a_folder_moves_from_sqlite_to_postgresql(server: Server, tmp_path: Path) -> None:
    """The catalog is made again from the blobs, and the merges are the same."""
    with Server(tmp_path / "embedded") as embedded:
        for name in "abc":
            assert embedded.submit(profile_of(name)).status_code == 204
        embedded.combine()
        assert embedded.submit(profile_of("d")).status_code == 204
        merged = embedded.merge().content
        assert embedded.stop() == 0
        embedded.catalogs = server.catalogs
        embedded.start()
        assert embedded.events("profiles recovered")
        assert embedded.merge().content == merged


def test_without_its_package_no_server_starts(tmp_path: Path) -> None:
    folder = tmp_path / "packages" / "psycopg"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise ImportError('no psycopg here')")
    variables = {"PYTHONPATH": str(folder.parent), "PGOF_CATALOG": "postgresql://127.0.0.1:1/"}
    server = Server(tmp_path / "home", variables, Installed())
    for command in ("serve", "check"):
        finished = server.run(command)
        assert finished.returncode in {1, 2}
        assert "pgo-collector[postgresql]" in finished.stderr + finished.stdout


def test_the_documented_role_serves_and_has_no_other_rights(cluster: Cluster, tmp_path: Path) -> None:
    """A second role, with the rights for serving only, serves the tables that the first one has made."""
    page = (Path(__file__).parents[3] / "docs" / "postgresql.md").read_text()
    in_cluster, in_database = re.findall(r"```sql\n(.*?)```", page, flags=re.DOTALL)
    admin = f"postgresql+psycopg://postgres@127.0.0.1:{cluster.port}"
    run_all(f"{admin}/postgres", in_cluster)
    run_all(f"{admin}/pgo_collector", in_database)
    url = f"127.0.0.1:{cluster.port}/pgo_collector"
    with Server(tmp_path / "owner", {"PGOF_CATALOG": f"postgresql://pgo_collector@{url}"}) as server:
        assert server.submit(profile_of("a")).status_code == 204
        assert server.combine().status_code == 200
        server.stop()
        server.reindex()
    for statement in (
        "CREATE TABLE public.t (i int)",
        "CREATE DATABASE another",
        "CREATE SCHEMA another",
        "CREATE ROLE another",
        "CREATE TEMPORARY TABLE t (i int)",
    ):
        with pytest.raises(sa.exc.ProgrammingError, match="permission denied"):
            run_all(f"postgresql+psycopg://pgo_collector@{url}", statement)
    run_all(
        f"{admin}/pgo_collector",
        """
        CREATE ROLE serving LOGIN;
        GRANT CONNECT ON DATABASE pgo_collector TO serving;
        GRANT USAGE ON SCHEMA pgo_collector TO serving;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pgo_collector TO serving;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA pgo_collector TO serving;
        """,
    )
    serving = f"postgresql://serving@{url}?options=-csearch_path%3Dpgo_collector"
    with Server(tmp_path / "owner", {"PGOF_CATALOG": serving}) as server:
        assert server.submit(profile_of("b")).status_code == 204
        assert server.combine().status_code == 200
        assert tally(server.merge().content) == {"a": 1, "b": 1}


def run_all(url: str, statements: str) -> None:
    """Run statements one by one, each by itself: a database isn't made in a transaction."""
    engine = sa.create_engine(url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in filter(str.strip, statements.split(";")):
            connection.exec_driver_sql(statement)


def test_a_selection_is_found_by_indexes(cluster: Cluster) -> None:
    """PostgreSQL is told to read whole tables only where it can't do without."""
    url = f"postgresql://postgres@127.0.0.1:{cluster.port}/postgres"
    database = PostgreSQL(f"{url}?options=-cenable_seqscan%3Doff", 1, 60, 60)
    database.open()
    catalog = Catalog(database)
    series = Series("s", CPU, (("region", "eu"),))
    catalog.add(*((BlobName(series, Identity(n, f"{n:064x}")), Facts(n, 1, "", 1, 1)) for n in range(1, 100)))
    seen: list[tuple[str, Any]] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: object, *_: object) -> None:
        seen.append((statement, parameters))

    europe, others = Matcher("region", frozenset({"eu", ""})), Matcher("pod", frozenset("x"), is_negated=True)
    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        for selection in (
            Selection("s", CPU),
            Selection("s", CPU, begin=5, end=50),
            Selection("s", CPU, (europe,)),
            Selection("s", CPU, (europe, others), 5),
        ):
            catalog.state(selection)
            assert len(catalog.live(selection)) == catalog.count(selection) > 10
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
    statements = [(text, values) for text, values in seen if "FROM blobs" in text]
    assert len(statements) > 12
    with database.reading() as connection:
        for text, values in statements:
            plan = connection.exec_driver_sql(f"EXPLAIN {text}", values).scalars().all()
            assert not [line for line in plan if "Seq Scan on blobs" in line], plan
    database.close()


def test_many_profiles_are_stored_by_few_statements_that_use_indexes(cluster: Cluster) -> None:
    """The planner knows the size of the tables, and chooses for itself."""
    database = PostgreSQL(f"postgresql://postgres@127.0.0.1:{cluster.port}/postgres", 1, 60, 60)
    database.open()
    catalog = Catalog(database)
    series, other = (Series("stored", CPU, (("region", region),)) for region in ("eu", "us"))
    stored = entries(series, range(1, 3000))
    catalog.add(*stored)
    run_all(f"postgresql+psycopg://postgres@127.0.0.1:{cluster.port}/postgres", "ANALYZE")
    read = rows_read_from_whole_tables(catalog)
    for turn in range(1, 20):
        known, new = stored[turn : turn + 5], entries(other, range(turn * 10, turn * 10 + 5))
        names = [name for name, _ in (*known, *new, known[0])]
        with catalog.writing() as connection:
            counting = read_counting(connection, names)
            assert [blob and blob.name for blob in counting.blobs.values()] == [*names[:5], *[None] * 5]
            assert set(counting.series) == ({series} if turn == 1 else {series, other})
            assert add_profiles(connection, new, counting.series)
    assert rows_read_from_whole_tables(catalog) == read
    assert catalog.count(Selection("stored", CPU)) == 2999 + 19 * 5
    database.close()


def entries(series: Series, numbers: Iterable[int]) -> list[tuple[BlobName, Facts]]:
    return [(BlobName(series, Identity(n, f"{n:064x}")), Facts(n, 1, f"{n:064x}", 1, 1)) for n in numbers]


def rows_read_from_whole_tables(catalog: Catalog) -> list[int]:
    """Return how many rows of blobs and profiles were read by scans of the whole tables, up to now."""
    query = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname IN ('blobs', 'profiles') ORDER BY 1"
    with catalog.writing() as connection:
        connection.exec_driver_sql("SELECT pg_stat_force_next_flush()")
    with catalog.writing() as connection:
        return [*connection.exec_driver_sql(query).scalars()]
