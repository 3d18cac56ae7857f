"""Kill, stop and restart PostgreSQL and the collector under load: no profile is lost or counted twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import Event

import httpx
import pytest

from tests.catalogs import Schemas
from tests.faults.stacks import profile_of, tally
from tests.interop.postgres_cluster import MISSING, Database, Installation, installed_postgres
from tests.server import Server, bearer

pytestmark = [pytest.mark.exhaustive, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

SUBMITTERS = 8
ROUNDS = 8
# No request takes longer than that: those that can't be served are refused.
TIMEOUT_SECONDS = 60.0
HASTY = {"PGOF_CATALOG_CONNECT_SECONDS": "1", "PGOF_CATALOG_STATEMENT_SECONDS": "2"}


@contextmanager
def running(home: Path, installation: Installation) -> Iterator[tuple[Server, Database]]:
    server, database = Server(home, HASTY), Database(installation)
    server.catalogs = Schemas(installation.port)
    database.start()
    try:
        server.start()
        yield server, database
    finally:
        server.kill()
        database.close()


class Submitter:
    """Sends one profile after another, each until it is acknowledged."""

    def __init__(self, server: Server, number: int) -> None:
        self._server = server
        self._number = number
        self.sent: list[str] = []
        self.acknowledged: list[str] = []

    def run(self, done: Event) -> None:
        with httpx.Client(timeout=TIMEOUT_SECONDS, verify=False) as client:  # noqa: S501 - plain HTTP
            while not done.is_set():
                stack = f"{self._number}-{len(self.sent)}"
                self.sent.append(stack)
                while not done.is_set() and not self._is_acknowledged(client, stack):
                    time.sleep(0.1)

    def _is_acknowledged(self, client: httpx.Client, stack: str) -> bool:
        url, headers = f"{self._server.base_url}/v1/submit", bearer(Server.submit_key)
        try:
            status = client.post(url, content=profile_of(stack), headers=headers).status_code
        except (httpx.NetworkError, httpx.RemoteProtocolError):  # the collector is killed
            return False
        assert status in {204, 503}, status
        if status == 204:
            self.acknowledged.append(stack)
        return status == 204


def combined(server: Server) -> None:
    assert server.combine().status_code in {200, 404, 503}


@pytest.mark.long
def test_what_is_acknowledged_counts_once_whatever_ends(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """It takes half a minute, for rounds of load and recovery."""
    random = Random(pytestconfig.getoption("kill_seed"))  # noqa: S311 - nothing secret
    with (
        installed_postgres() as installation,
        running(tmp_path, installation) as (server, database),
        ThreadPoolExecutor(SUBMITTERS) as pool,
    ):
        submitters, done = [Submitter(server, number) for number in range(SUBMITTERS)], Event()
        futures = [pool.submit(submitter.run, done) for submitter in submitters]
        happenings: list[Callable[[], None]] = [
            database.restart,
            database.kill,
            lambda: database.stop(random.uniform(1, 6)),
            server.restart,
            lambda: combined(server),
        ]
        try:
            for happening in [*happenings, *random.choices(happenings, k=ROUNDS - len(happenings))]:
                time.sleep(random.uniform(0.2, 2))
                happening()
        finally:
            done.set()
        for future in futures:
            future.result()
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while server.client.get("/readyz").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        acknowledged = {stack for submitter in submitters for stack in submitter.acknowledged}
        sent = {stack for submitter in submitters for stack in submitter.sent}
        assert len(acknowledged) > SUBMITTERS
        check(server, acknowledged, sent)
        for stack in sent:
            assert server.submit(profile_of(stack)).status_code == 204
        check(server, sent, sent)
        server.stop()
        server.reindex()
        server.start()
        check(server, sent, sent)


def check(server: Server, acknowledged: set[str], sent: set[str]) -> None:
    counts = tally(server.merge().content)
    assert acknowledged <= counts.keys() <= sent
    assert {*counts.values()} == {1}
