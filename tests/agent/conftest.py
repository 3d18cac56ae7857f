"""Provide the server that tests of the client start from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agent.scripted_server import ScriptedServer, scripted_server


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as scripted:
        yield scripted
