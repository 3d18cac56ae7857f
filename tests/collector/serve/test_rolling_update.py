"""Updates from each release and the way back: of what it left, and under load, of one and of several."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Final

import httpx
import pgo_collector
import pytest
from pgo_collector.catalog.migrations import VERSION

from tests.collector.serve.releases import (
    COMMITS,
    EVENTS,
    Code,
    code_of,
    put_folder,
    put_shared,
    with_webhook,
)
from tests.collector.serve.releases import (
    check as check_all,
)
from tests.collector.webhooks import send
from tests.faults.stacks import EPOCH, profile_of, tally
from tests.interop.listening import free_port
from tests.interop.nginx_process import balanced_nginx
from tests.receiver import Receiver
from tests.server import Server, bearer

RELEASES: Final = sorted(COMMITS)
_SUBMITTERS: Final = 4
_REST_SECONDS: Final = 0.02
_TIMEOUT_SECONDS: Final = 120.0
_PROXY_SECONDS: Final = 30
_MIGRATION: Final = '''
"""A step of a test."""

import sqlalchemy as sa
from alembic import op

revision = "{newer}"
down_revision = "{older}"


def upgrade() -> None:
    op.add_column("blobs", sa.Column("origin", sa.Text))
'''


class Load:
    """Clients that submit through a URL while it is entered; `acknowledged` are their stacks.

    They send again whatever the collector refuses with 503 or doesn't answer, and `failures` counts that.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._over = Event()
        self.acknowledged: list[str] = []
        self.failures = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        with ThreadPoolExecutor(_SUBMITTERS) as pool:
            futures = [pool.submit(self._submit_all, number) for number in range(_SUBMITTERS)]
            try:
                yield
            finally:
                self._over.set()
            for future in futures:
                future.result()

    def wait_for_more(self, count: int = 30) -> None:
        """Wait until `count` more submits are acknowledged."""
        wanted, deadline = len(self.acknowledged) + count, time.monotonic() + _TIMEOUT_SECONDS
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def _submit_all(self, number: int) -> None:
        with httpx.Client(timeout=_TIMEOUT_SECONDS, verify=False) as client:  # noqa: S501 - plain HTTP
            sent = 0
            while not self._over.is_set():
                stack = f"{number}-{sent}"
                while not self._is_acknowledged(client, stack, f"service-{number}"):
                    self.failures += 1
                    time.sleep(0.05)
                self.acknowledged.append(stack)
                sent += 1
                self._over.wait(_REST_SECONDS)

    def _is_acknowledged(self, client: httpx.Client, stack: str, service: str) -> bool:
        try:
            answer = client.post(
                f"{self._url}/v1/submit",
                params={"service": service},
                content=profile_of(stack, time_nanos=EPOCH + len(self.acknowledged)),
                headers=bearer(Server.submit_key),
            )
        except httpx.TransportError:
            return False
        assert answer.status_code in {204, 503}, answer.text
        return answer.status_code == 204


def check(server: Server, load: Load) -> None:
    """Check that each acknowledged profile is in the merges exactly once, and nothing else."""
    found: dict[str, int] = {}
    for number in range(_SUBMITTERS):
        found |= tally(server.merge(query={"service": f"service-{number}"}).content)
    assert found == dict.fromkeys(load.acknowledged, 1)


def combine(server: Server) -> None:
    for number in range(_SUBMITTERS):
        assert server.combine(query={"service": f"service-{number}"}).status_code == 200


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Code | None:
    """The last release, if its code is in the history."""
    return code_of(RELEASES[-1], tmp_path_factory.mktemp("before"))


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Code:
    """Run this version with a step to a new minor version of the tables."""
    (source,) = pgo_collector.__path__
    folder = tmp_path_factory.mktemp("newer")
    package = shutil.copytree(source, folder / "pgo_collector", ignore=shutil.ignore_patterns("__pycache__"))
    migrations = package / "catalog" / "migrations"
    version = VERSION._replace(minor=VERSION.minor + 1)
    text, old = (
        (migrations / "__init__.py").read_text(),
        f"VERSION = Version({VERSION.major}, {VERSION.minor})",
    )
    assert text.count(f"\n{old}\n") == 1
    new = f"VERSION = Version({version.major}, {version.minor})"
    (migrations / "__init__.py").write_text(text.replace(f"\n{old}\n", f"\n{new}\n"))
    step = _MIGRATION.format(newer=version, older=VERSION)
    (migrations / "versions" / "v_next.py").write_text(step)
    return Code(folder)


@pytest.mark.folder
@pytest.mark.sqlite
@pytest.mark.exhaustive  # the next tests have what the releases left
def test_one_machine_is_updated_under_load_and_back(tmp_path: Path, before: Code | None) -> None:
    """Clients send again what falls into the gap between two processes, as the agent does.

    Without the old release's code, the update is from a data folder that it has left.
    """
    port = free_port()
    old = Server(tmp_path / "home", {"PGOF_BIND_ADDRESS": f"127.0.0.1:{port}"}, before)
    new = Server(tmp_path / "home", {"PGOF_BIND_ADDRESS": f"127.0.0.1:{port}"})
    load = Load(f"http://127.0.0.1:{port}")
    if before is None:
        put_folder(new, RELEASES[-1])
    try:
        if before is not None:
            old.start()
        with load.running():
            if before is not None:
                load.wait_for_more()
                combine(old)
                load.wait_for_more()
                assert old.stop() == 0
            new.start()
            load.wait_for_more()
            combine(new)
            load.wait_for_more()
            if before is not None:
                assert new.stop() == 0
                old.start()
                load.wait_for_more()
        if before is not None:
            check(old, load)
            assert old.stop() == 0
            new.start()
        check(new, load)
        assert not new.events("catalog tables replaced")
    finally:
        old.kill()
        new.kill()


@pytest.mark.folder
@pytest.mark.sqlite
@pytest.mark.parametrize("version", RELEASES)
def test_the_data_folder_of_a_release_is_used_as_it_is_and_the_way_back_is_a_backup(
    stopped: Server, version: str
) -> None:
    put_folder(stopped, version)
    use_what_is_left(stopped)
    restore_with(code_of(version, stopped.home / "code"), stopped)


@pytest.mark.shared
@pytest.mark.parametrize("version", RELEASES)
def test_a_bucket_and_a_database_of_a_release_are_used_as_they_are_and_back(
    stopped: Server, version: str
) -> None:
    put_shared(stopped, version)
    use_what_is_left(stopped)
    assert stopped.stop() == 0
    with Server(stopped.home, stopped.environment, code_of(version, stopped.home / "code")) as old:
        check_all(old, more="f")


def use_what_is_left(server: Server) -> None:
    """Start on what a release left; nothing is made again, and nothing is lost."""
    with Receiver() as receiver:
        with_webhook(server, receiver.url).start()
        for event in ("catalog tables replaced", "profiles recovered", "profile recounted"):
            assert not server.events(event)
        check_all(server)
        receiver.wait_for(EVENTS)
    send(server, *"abc", labels="version=1")
    check_all(server)
    assert server.submit(profile_of("f")).status_code == 204
    check_all(server, more="f")


def restore_with(code: Code | None, server: Server) -> None:
    """Restore a backup of this version with older code, which has all that was submitted meanwhile."""
    backup = server.home / "backup"
    assert server.run("backup", str(backup)).returncode == 0
    old = Server(server.home / "old", launcher=code)
    restored = old.run("restore", str(backup))
    assert restored.returncode == 0, restored.stderr
    with old:
        check_all(old, more="f")


@pytest.mark.shared
def test_collectors_that_share_everything_are_updated_one_by_one(tmp_path: Path, newer: Code) -> None:
    """No submit fails: nginx asks the other collector while one is updated, and both versions work on one
    catalog.

    It takes half a minute: four starts, and load between them.
    """
    first = Server(tmp_path / "first")
    places = {name: first.variables[name] for name in ("PGOF_CATALOG", "PGOF_STORAGE")}
    ports = [free_port(), free_port()]
    servers = [
        Server(
            tmp_path / str(number),
            {"PGOF_BIND_ADDRESS": f"127.0.0.1:{port}", "PGOF_UPKEEP_SECONDS": "1", **places},
        )
        for number, port in enumerate(ports)
    ]
    try:
        for server in servers:
            server.start()
        with balanced_nginx(tmp_path / "nginx", ports, _PROXY_SECONDS) as url:
            load = Load(url)
            with load.running():
                load.wait_for_more()
                for server in servers:
                    assert server.stop() == 0
                    server.launcher = newer
                    server.start()
                    combine(server)
                    load.wait_for_more()
                servers[0].stop()
                del servers[0].launcher  # back to the older version, beside the newer one
                servers[0].start()
                load.wait_for_more()
        assert load.failures == 0
        for server in servers:
            combine(server)
            check(server, load)
    finally:
        for server in servers:
            server.kill()
