"""Provide targets, and the command that scrapes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.scrape.scraping import Scraping
from tests.agent.scrape.target_server import TargetServer, target_server
from tests.agent.scripted_server import KEY, ScriptedServer


@pytest.fixture
def targets() -> Iterator[TargetServer]:
    with target_server() as served:
        yield served


@pytest.fixture
def scraping(tmp_path: Path, server: ScriptedServer) -> Scraping:
    """Provide a collector that accepts everything, unless its script says otherwise."""
    return Scraping(tmp_path, server.url, KEY)
