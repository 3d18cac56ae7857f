"""Fixtures: a browser and a collector with real profiles, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("browser")) as server:
        fill(server)
        yield server


@pytest.fixture
def person(browser: Browser, server: Server) -> Iterator[Person]:
    """A signed-in user; the test fails if anything goes wrong on their pages."""
    with Person.of(browser, server) as person:
        yield person
        assert not person.faults
        assert not person.dialogs
