"""Fixtures: a collector of one's own, running or not, and one for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server import Server

PROFILES = Path(__file__).parents[1] / "testdata" / "profiles"


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Server]:
    """A collector that is not running, on a data folder that doesn't exist."""
    server = Server(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def server(stopped: Server) -> Server:
    """A running collector on an empty data folder."""
    stopped.start()
    return stopped


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running collector for tests that don't mind what others store in it."""
    with Server(tmp_path_factory.mktemp("shared")) as server:
        yield server


@pytest.fixture(scope="session")
def go_profiles() -> list[bytes]:
    """Real profiles of one Go program, gzipped."""
    return [path.read_bytes() for path in sorted(PROFILES.glob("apisvc-v1-*.pb.gz"))]
