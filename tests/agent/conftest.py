"""Provide the server that tests of the client start from, and the tools that tests of profiles run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agent.scripted_server import ScriptedServer, scripted_server
from tests.agent.stand_ins.tools import use_stand_ins


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as scripted:
        yield scripted


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the agent find stand-ins for perf, bpftrace and LLVM's tools."""
    use_stand_ins(monkeypatch)
