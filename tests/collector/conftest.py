"""Fixtures: a collector of one's own, running or not, and one for all tests of a module."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collector.own_service import OwnService
from tests.collector.webhooks import SECRET
from tests.interop.postgres_cluster import MISSING, Cluster, running_postgres
from tests.server import Server

PROFILES = Path(__file__).parents[1] / "testdata" / "profiles"


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Server]:
    """Yield a collector that isn't running, whose data folder doesn't exist."""
    server = Server(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def server(stopped: Server) -> Server:
    """Return a running collector on an empty data folder."""
    stopped.start()
    return stopped


@pytest.fixture
def hooked(stopped: Server) -> Server:
    """A stopped collector with a webhook, whose receiver isn't set yet."""
    file = stopped.home / "webhook_secret"
    file.write_text(f"{SECRET}\n")
    stopped.environment["PGOF_WEBHOOK_SECRET_FILE"] = str(file)
    stopped.environment["PGOF_METRICS_OPEN"] = "true"
    return stopped


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running collector for tests that work whatever others store in it."""
    with Server(tmp_path_factory.mktemp("shared")) as server:
        yield server


@pytest.fixture
def own(shared: Server, request: pytest.FixtureRequest) -> OwnService:
    """A service of one's own on the running collector that the module shares."""
    return OwnService(shared, f"own-{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]}")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Cluster]:
    """A PostgreSQL for all tests of a module."""
    if MISSING:
        pytest.skip(MISSING)
    with running_postgres(scale=0) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def go_profiles() -> list[bytes]:
    """Return real profiles of one Go program, gzipped."""
    return [path.read_bytes() for path in sorted(PROFILES.glob("apisvc-v1-*.pb.gz"))]
