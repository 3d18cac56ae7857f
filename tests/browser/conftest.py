"""Fixtures: a browser and a collector with real profiles, for all tests of a module."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import PATH, Person, chromium
from tests.browser.site import fill
from tests.server import Server


# Module scope, since other tests can't run their own event loops while the browser runs.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if PATH is None:
        pytest.skip("Chromium is not installed")
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a collector with real profiles, for collectors that start with a copy of it."""
    with Server(tmp_path_factory.mktemp("filled")) as server:
        fill(server)
        assert server.stop() == 0
    return server.data


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, filled: Path) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("browser"))
    shutil.copytree(filled, server.data)
    with server:
        yield server


@pytest.fixture
def person(browser: Browser, server: Server) -> Iterator[Person]:
    """A signed-in user; the test fails if anything goes wrong on their pages."""
    with Person.of(browser, server) as person:
        yield person
        assert not person.faults
        assert not person.dialogs
