"""The table of protocols has each path that the API serves besides that of `/v1`, under one protocol."""

from __future__ import annotations

from pathlib import Path

import pytest
from pgo_collector.routes.protocols import PROTOCOLS, Protocol

REFERENCE = Path(__file__).parents[2] / "docs/reference/routes.md"
ROUTES = [line[3:] for line in REFERENCE.read_text().splitlines() if line.startswith("## /")]
OURS = ("/v1/", "/readyz", "/metrics")


@pytest.mark.parametrize("path", ROUTES)
def test_a_path_is_of_v1_or_of_one_protocol(path: str) -> None:
    owners = [protocol.name for protocol in PROTOCOLS if protocol.has_path(path)]
    assert len(owners) == (0 if path.startswith(OURS) else 1), owners


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
def test_a_protocol_serves_a_path(protocol: Protocol) -> None:
    assert any(map(protocol.has_path, ROUTES))
