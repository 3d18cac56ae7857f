"""The agent that tests of a module share; each module has its own `serving`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agent.serving import Serving


@pytest.fixture
def agent(serving: Serving) -> Iterator[Serving]:
    """Provide one agent for all tests of a module, idle after each."""
    yield serving
    serving.wait_until_idle()
    assert serving.children() == []
