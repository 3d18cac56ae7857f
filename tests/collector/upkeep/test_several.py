"""Several collectors at once over one PostgreSQL and one bucket, which the stage `shared` starts."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import obstore
import pytest
import sqlalchemy as sa
from obstore.store import S3Store
from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.migrations import VERSIONS
from pgo_collector.catalog.tables import BLOBS, LEASES, METADATA
from pgo_collector.errors import LeaseLost
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import BLOB_SUFFIX
from pgo_collector.settings import Settings
from pgo_collector.store.store import database_of

from tests.catalogs import Files, SharedSchema
from tests.collector.debuginfod_server import DebuginfodServer
from tests.collector.http.test_routes import assert_problem
from tests.collector.middle import Middle
from tests.collector.queries.test_names import BUILD_ID, PROGRAM, bare
from tests.collector.visitor import Visitor
from tests.constants import CLAIM
from tests.faults.stacks import EPOCH, profile_of, tally
from tests.interop.ceph_cluster import Gateway
from tests.interop.postgres_cluster import Cluster
from tests.server import Server, bearer

pytestmark = pytest.mark.bucket

# A key that may submit and merge.
BOTH = "a-key-of-both"
# The event of profiles that are deleted under a lease which isn't settled.
KEPT_NAMES = "deletion postponed"
# The event of a combine that is left out, since a request to delete its blob may still arrive.
NAME_TAKEN = "combine postponed"


def add_key(server: Server) -> None:
    """Let BOTH submit and merge, too."""
    for keys, own in ((server.submit_keys, server.submit_key), (server.merge_keys, server.merge_key)):
        keys.write_text(f"{own}\n{BOTH}\n")


@contextmanager
def collectors(
    gateway: Gateway, postgres: Cluster, home: Path, count: int = 3, **settings: str
) -> Iterator[list[Server]]:
    """Collectors that share a catalog and a bucket."""
    catalogs = SharedSchema(postgres.port, home)
    shared = {"PGOF_STORAGE": f"s3://{gateway.new_bucket()}/pgo", **gateway.environment, **settings}
    with ExitStack() as stack:
        servers = []
        for number in range(count):
            server = Server(home / str(number), shared)
            add_key(server)
            server.catalogs = catalogs
            stack.callback(server.kill)
            servers.append(server)
        for server in servers:
            server.start()
        yield servers


@pytest.fixture
def three(gateway: Gateway, postgres: Cluster, tmp_path: Path) -> Iterator[list[Server]]:
    with collectors(gateway, postgres, tmp_path) as servers:
        yield servers


def live_blobs(server: Server) -> list[bool]:
    """Return of each blob in the catalog whether it is live."""
    with server.catalog() as catalog:
        return [*catalog.execute(sa.select(BLOBS.c.live)).scalars()]


def lease_of_another(server: Server, name: str, ends_ms: int) -> None:
    """Have another collector hold a lease, which isn't heard of again."""
    with server.catalog() as catalog:
        catalog.execute(sa.insert(LEASES).values(name=name, token=1, ends_ms=ends_ms, deletes_ms=0))


def blob_count(server: Server, gateway: Gateway) -> int:
    """Return how many blobs are in the bucket of a collector."""
    store = S3Store.from_url(
        server.variables["PGOF_STORAGE"],
        endpoint=gateway.url,
        access_key_id=gateway.access_key,
        secret_access_key=gateway.secret_key,
        client_options={"allow_http": True},
    )
    return sum(each["path"].endswith(BLOB_SUFFIX) for page in obstore.list(store) for each in page)


def test_signing_out_at_one_collector_ends_the_session_at_all(
    gateway: Gateway, postgres: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("s" * 32)
    settings = {"PGOF_SESSION_SECRET_FILE": str(tmp_path / "secret")}
    with collectors(gateway, postgres, tmp_path, 2, **settings) as (one, other):
        visitor, copy = Visitor(one), Visitor(other, key=None)
        copy.cookies.update(visitor.cookies)
        assert copy.get("/ui/").status_code == 200
        assert visitor.post("/ui/sign-out").status_code == 303
        assert copy.get("/ui/").status_code == 303


def test_each_collector_serves_what_any_has_stored(three: list[Server]) -> None:
    for number, server in enumerate(three):
        answer = server.submit(profile_of(f"of{number}"))
        assert answer.status_code == 204, answer.text
        for other in three:
            expected = {f"of{each}": 1 for each in range(number + 1)}
            assert tally(other.merge().content) == expected
    assert len({server.merge().content for server in three}) == 1
    assert len({server.merge().headers["ETag"] for server in three}) == 1


def test_the_same_profile_sent_to_all_at_once_counts_once(three: list[Server]) -> None:
    """With a time and without one, which each collector would give it by itself."""
    profiles = [profile_of(f"p{number}", time_nanos=EPOCH * (number % 2)) for number in range(10)]

    def send(server: Server) -> list[int]:
        return [server.submit(profile).status_code for profile in profiles]

    with ThreadPoolExecutor() as threads:
        statuses = [*threads.map(send, three * 3)]
    assert {status for each in statuses for status in each} <= {204, 503}
    for profile in profiles:
        assert three[0].submit(profile).status_code == 204
    expected = {f"p{number}": 1 for number in range(10)}
    assert all(tally(server.merge().content) == expected for server in three)


def test_combines_of_all_at_once_count_everything_once(three: list[Server]) -> None:
    names = [f"s{number}" for number in range(60)]
    stop = threading.Event()

    def combine(server: Server) -> Counter[int]:
        answers: Counter[int] = Counter()
        while not stop.is_set():
            answers[server.combine().status_code] += 1
        return answers

    assert three[0].submit(profile_of("first")).status_code == 204
    with ThreadPoolExecutor() as threads:
        combining = [threads.submit(combine, server) for server in three]
        for number, name in enumerate(names):
            server = three[number % 3]
            while server.submit(profile_of(name)).status_code != 204:
                time.sleep(0.05)
        stop.set()
        answers = sum((each.result() for each in combining), Counter())
    assert answers[200] > 3, answers
    assert {*answers} <= {200, 503}, answers
    expected = dict.fromkeys(["first", *names], 1)
    assert all(tally(server.merge().content) == expected for server in three)


def test_a_lease_that_was_not_given_back_is_taken_over_and_what_a_combine_replaced_stays_for_a_while(
    gateway: Gateway, postgres: Cluster, tmp_path: Path
) -> None:
    with collectors(gateway, postgres, tmp_path, 2) as (one, other):
        for name in "abcdef":
            assert one.submit(profile_of(name)).status_code == 204
        lease_of_another(one, "default/cpu", ends_ms=1 << 60)
        with ThreadPoolExecutor() as threads:
            waiting = threads.submit(other.combine)
            time.sleep(1)
            assert not waiting.done()
            with one.catalog() as catalog:
                catalog.execute(sa.update(LEASES).values(ends_ms=0))
            assert waiting.result().status_code == 200
        assert [event["blobs"] for event in other.events(KEPT_NAMES)] == [6]
        assert sorted(live_blobs(one)) == [False] * 6 + [True]
        assert blob_count(one, gateway) == 7
        assert tally(one.merge().content) == dict.fromkeys("abcdef", 1)
        assert one.submit(profile_of("a")).status_code == 204
        assert tally(one.merge().content) == dict.fromkeys("abcdef", 1)


def test_a_lease_that_was_not_given_back_does_not_keep_what_is_deleted(
    gateway: Gateway, postgres: Cluster, tmp_path: Path
) -> None:
    """Its files are gone at once, or a reindex would take them in; its names stay taken for a while."""
    with collectors(gateway, postgres, tmp_path, 2) as (one, other):
        for name in "ab":
            assert one.submit(profile_of(name)).status_code == 204
        lease_of_another(one, "default/cpu", ends_ms=0)
        gone = other.client.delete("/api/profile/default", headers=bearer(BOTH))
        assert gone.status_code == 200, gone.text
        assert [event["blobs"] for event in other.events(KEPT_NAMES)] == [2]
        assert live_blobs(one) == [False] * 2
        assert blob_count(one, gateway) == 0
        refused = one.submit(profile_of("a"))
        assert_problem(refused, 503)
        assert "the same profile was deleted, and isn't gone yet" in refused.text
        for server in (one, other):
            assert server.stop() == 0
        one.reindex()
        one.start()
        assert_problem(one.merge(), 404)
        assert one.submit(profile_of("a")).status_code == 204
        assert tally(one.merge().content) == {"a": 1}


@contextmanager
def held_up(gateway: Gateway, postgres: Cluster, home: Path) -> Iterator[tuple[Server, Server, Middle]]:
    """Two collectors, and what is between the first one and the bucket."""
    middle = Middle(gateway.port)
    with collectors(gateway, postgres, home, 2, PGOF_STORAGE_SECONDS="2") as (one, other):
        assert one.stop() == 0
        one.environment["AWS_ENDPOINT_URL"] = middle.url
        one.start()
        for name in "ab":
            assert one.submit(profile_of(name)).status_code == 204
        assert tally(one.merge().content) == {"a": 1, "b": 1}  # later ones have no blob to read
        yield one, other, middle
        for server in (one, other):
            assert server.stop() == 0
        one.reindex()
        one.start()
        assert tally(one.merge().content) == {"a": 1, "b": 1}
    middle.close()


def test_what_a_failed_combine_asked_of_the_bucket_may_arrive_after_the_next_one(
    gateway: Gateway, postgres: Cluster, tmp_path: Path
) -> None:
    with held_up(gateway, postgres, tmp_path) as (one, other, middle):
        middle.holds = True
        assert_problem(one.combine(), 503)
        assert other.combine().status_code == 200
        middle.let_go()


@pytest.mark.parametrize("in_between", ["nothing", "a start of both"])
def test_a_failed_request_to_delete_may_arrive_after_the_same_profiles_are_combined_again(
    gateway: Gateway, postgres: Cluster, tmp_path: Path, in_between: str
) -> None:
    with held_up(gateway, postgres, tmp_path) as (one, other, middle):
        assert one.combine().status_code == 200
        middle.holds = True
        assert one.client.delete("/api/profile/default", headers=bearer(BOTH)).status_code == 200
        if in_between == "a start of both":
            for server in (one, other):
                assert server.stop() == 0
            middle.holds = False
            for server in (other, one):
                server.start()
        for name in "ab":
            assert other.submit(profile_of(name)).status_code == 204
        assert other.combine().status_code == 200
        assert len(other.events(NAME_TAKEN)) == 1
        middle.let_go()


def test_the_same_holds_for_one_collector_with_a_catalog_of_its_own(gateway: Gateway, tmp_path: Path) -> None:
    """It doesn't know after a start which requests were on their way, so each may be."""
    middle = Middle(gateway.port)
    bucket = {"PGOF_STORAGE": f"s3://{gateway.new_bucket()}/pgo", **gateway.environment}
    alone = Server(
        tmp_path / "alone", {**bucket, "PGOF_STORAGE_SECONDS": "2", "AWS_ENDPOINT_URL": middle.url}
    )
    alone.catalogs = Files()
    add_key(alone)
    twice_a = [profile_of("a", time_nanos=EPOCH + late) for late in (0, 1)]
    first = [*twice_a, profile_of("b", time_nanos=EPOCH + 2)]
    with alone:
        for profile in twice_a:
            assert alone.submit(profile, query={"service": "other"}).status_code == 204
        # Other profiles than the first ones, with the same merge.
        second = [alone.merge(query={"service": "other"}).content, profile_of("b", time_nanos=EPOCH + 3)]
        for profile in first:
            assert alone.submit(profile).status_code == 204
        assert alone.combine().status_code == 200
        middle.holds = True
        assert alone.client.delete("/api/profile/default", headers=bearer(BOTH)).status_code == 200
        alone.kill()
        middle.holds = False
        alone.start()
        for profile in second:
            assert alone.submit(profile).status_code == 204
        assert alone.combine().status_code == 200
        assert len(alone.events(NAME_TAKEN)) == 1
        middle.let_go()
        assert alone.stop() == 0
        alone.reindex()
        alone.start()
        assert tally(alone.merge().content) == {"a": 2, "b": 1}
    middle.close()


def test_upkeep_is_taken_over_from_a_collector_that_died(
    gateway: Gateway, postgres: Cluster, tmp_path: Path
) -> None:
    """It may be the same collector, before it crashed: it would else wait for the next upkeep, in an hour."""
    with collectors(gateway, postgres, tmp_path, 1) as (one,):
        one.wait_for_log("upkeep done")
        one.kill()
        ends = time.time_ns() // 10**6 + 5_000
        with one.catalog() as catalog:
            catalog.execute(sa.delete(LEASES))
        lease_of_another(one, "upkeep", ends_ms=ends)
        one.start()
        one.wait_for_log("upkeep done")
        assert time.time_ns() // 10**6 >= ends
        assert not one.events("upkeep skipped")


def test_a_killed_collector_holds_nobody_up(gateway: Gateway, postgres: Cluster, tmp_path: Path) -> None:
    with collectors(gateway, postgres, tmp_path, 2) as (one, other):
        for name in "abc":
            assert one.submit(profile_of(name)).status_code == 204
        one.kill()
        assert other.combine().status_code == 200
        assert other.submit(profile_of("d")).status_code == 204
        one.start()
        assert not one.events("profiles recovered")
        assert tally(one.merge().content) == dict.fromkeys("abcd", 1)


def test_a_stopped_collector_holds_nobody_up(three: list[Server]) -> None:
    one, other, third = three
    for name in "abc":
        assert one.submit(profile_of(name)).status_code == 204
    os.kill(one.process.pid, signal.SIGSTOP)
    try:
        for name in "def":
            assert other.submit(profile_of(name)).status_code == 204
        assert third.combine().status_code == 200
    finally:
        os.kill(one.process.pid, signal.SIGCONT)
    assert one.submit(profile_of("g")).status_code == 204
    assert all(tally(server.merge().content) == dict.fromkeys("abcdefg", 1) for server in three)


def test_a_lone_collector_has_the_catalog_to_itself_until_it_has_compared_it(
    gateway: Gateway, postgres: Cluster, tmp_path: Path
) -> None:
    """A blob without a row, as a collector leaves it that is killed while it stores one, is taken in then."""
    with collectors(gateway, postgres, tmp_path, 2) as (one, other):
        for name in "ab":
            assert one.submit(profile_of(name)).status_code == 204
        with one.catalog() as catalog:
            catalog.exec_driver_sql("DELETE FROM profiles")
            catalog.exec_driver_sql("DELETE FROM blobs")
        other.restart()  # the other one is there, so nothing is compared
        assert_problem(other.merge(), 404)
        one.stop()
        other.restart()
        assert other.events("profiles recovered")
        assert tally(other.merge().content) == dict.fromkeys("ab", 1)


@pytest.mark.long
def test_a_lost_catalog_is_not_begun_anew_while_a_collector_runs(
    gateway: Gateway, postgres: Cluster, tmp_path: Path
) -> None:
    """The collector that makes it again waits whether the bucket is still in use."""
    with collectors(gateway, postgres, tmp_path, 2, **CLAIM) as (one, other):
        assert one.submit(profile_of("a")).status_code == 204
        assert other.stop() == 0
        with one.catalog() as catalog:
            METADATA.drop_all(catalog)
            VERSIONS.drop(catalog)
        other.listen()
        waiting = other.wait_for_log("waiting for catalog")
        assert "its tables are gone, and other collectors still use it" in waiting["reason"]
        for answer in (one.submit(profile_of("b")), one.merge()):
            assert_problem(answer, 503)
            assert "its database has no tables; stop all collectors" in answer.json()["detail"]
        unready = one.client.get("/readyz")
        assert unready.status_code == 503
        assert "its database has no tables" in unready.text
        one.kill()
        other.wait_for_log("serving")
        assert tally(other.merge().content) == {"a": 1}
        one.start()
        assert one.submit(profile_of("b")).status_code == 204
        assert tally(other.merge().content) == {"a": 1, "b": 1}


def test_what_is_deleted_can_be_sent_again_to_another_collector(three: list[Server]) -> None:
    one, other, _ = three
    for _ in range(3):
        assert one.submit(profile_of("a")).status_code == 204
        gone = other.client.delete("/api/profile/default", headers=bearer(BOTH))
        assert gone.status_code == 200, gone.text
        assert one.submit(profile_of("a")).status_code == 204
        assert tally(other.merge().content) == {"a": 1}


def test_a_lease_that_a_transaction_checks_is_waited_for(
    gateway: Gateway, postgres: Cluster, tmp_path: Path
) -> None:
    """A combine of very many profiles has a long one."""
    with collectors(gateway, postgres, tmp_path, 1) as (one,):
        for name in "ab":
            assert one.submit(profile_of(name)).status_code == 204
        lease_of_another(one, "default/cpu", ends_ms=0)
        with ThreadPoolExecutor() as threads:
            with one.catalog() as catalog:
                catalog.execute(sa.select(LEASES).with_for_update(read=True))
                waiting = threads.submit(one.combine)
                time.sleep(2)
                assert not waiting.done()
            assert waiting.result().status_code == 200
        assert tally(one.merge().content) == {"a": 1, "b": 1}


def test_one_of_them_asks_debuginfod_and_all_have_the_names(
    gateway: Gateway, postgres: Cluster, tmp_path: Path
) -> None:
    file = f"{BUILD_ID.hex()}/debuginfo"
    with (
        DebuginfodServer({file: PROGRAM}) as debuginfod,
        collectors(gateway, postgres, tmp_path, 2) as servers,
    ):
        assert servers[0].submit(bare(BUILD_ID)).status_code == 204
        assert servers[0].submit(bare(b"87654321")).status_code == 204
        # They look when they start, and then once a minute. If they looked before, a stop could cut an answer
        # off, which is asked for again.
        for server in servers:
            server.stop()
        for server in servers:
            server.environment["PGOF_DEBUGINFOD_URLS"] = debuginfod.url
            server.start()
        wait_until(lambda: all("work" in server.merge(format_="folded").text for server in servers))
        other = b"87654321".hex()
        wait_until(lambda: f"{other}/executable" in debuginfod.asked)
        assert sorted(debuginfod.asked) == sorted([file, f"{other}/debuginfo", f"{other}/executable"])


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.long
def test_a_collector_that_lost_its_lease_changes_nothing(
    gateway: Gateway, postgres: Cluster, tmp_path: Path
) -> None:
    with collectors(gateway, postgres, tmp_path, 1) as (one,):
        for name in "ab":
            assert one.submit(profile_of(name)).status_code == 204
        url, bucket = one.variables["PGOF_CATALOG"], one.variables["PGOF_STORAGE"]
        catalog = Catalog(database_of(Settings(catalog=url, storage=bucket)))
        catalog.database.open()
        try:
            lease = catalog.database.leases.take("default/cpu")
            assert lease is not None
            assert catalog.database.leases.take("default/cpu") is None
            lease.renew()
            with one.catalog() as connection:
                connection.execute(sa.update(LEASES).values(token=2))
            with pytest.raises(LeaseLost):
                catalog.retire(lease, catalog.live(Selection("default", "cpu")))
            with pytest.raises(LeaseLost):
                lease.renew()
        finally:
            catalog.database.close()
        assert tally(one.merge().content) == {"a": 1, "b": 1}
