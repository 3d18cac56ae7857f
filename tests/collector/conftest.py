"""Fixtures: a collector that runs, and one that doesn't yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server import Server


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
