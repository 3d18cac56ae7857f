"""All reference pages. The page of routes and that of metrics are made from a running collector."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.faults.stacks import profile_of
from tests.server import Server
from tools.site.reference.commands import commands_page
from tools.site.reference.events import agent_events_page, events_page
from tools.site.reference.metrics import metrics_page
from tools.site.reference.routes import routes_page
from tools.site.reference.settings import settings_page

FOLDER = Path(__file__).parents[3] / "docs" / "reference"


def pages() -> dict[str, str]:
    """Return the text of each page by the name of its file. Runs a collector to ask it."""
    with (
        tempfile.TemporaryDirectory() as home,
        Server(Path(home), {"PGOF_METRICS_OPEN": "true"}) as server,
    ):
        # One of each outcome, so that every metric has a sample.
        for content in (profile_of("a"), profile_of("a"), b"no profile"):
            server.submit(content)
        server.merge()
        document = server.client.get("/v1/openapi.json").json()
        exposition = server.client.get("/metrics").text
    return {
        "agent-events.md": agent_events_page(),
        "commands.md": commands_page(),
        "events.md": events_page(),
        "metrics.md": metrics_page(exposition),
        "routes.md": routes_page(document),
        "settings.md": settings_page(),
    }
