"""All files that are made from the code: reference pages, and parts of other files.

The page of routes and what is made of metrics come from a running collector.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.faults.stacks import profile_of
from tests.server import Server
from tools.site.reference.commands import commands_page
from tools.site.reference.deployment import DASHBOARD, SCHEMA, with_panels, with_settings
from tools.site.reference.events import agent_events_page, events_page
from tools.site.reference.metrics import exposed, metrics_page
from tools.site.reference.routes import routes_page
from tools.site.reference.settings import settings_page
from tools.site.reference.trackers import PAGE, with_trackers

FOLDER = Path(__file__).parents[3] / "docs" / "reference"
# In 2262, after any now: the latest time that a profile can have, in ns since 1970.
_AHEAD = (1 << 63) - 1


def files() -> dict[Path, str]:
    """Return the text of each file. Runs a collector to ask it."""
    with (
        tempfile.TemporaryDirectory() as home,
        Server(Path(home), {"PGOF_METRICS_OPEN": "true"}) as server,
    ):
        # One of each outcome, so that every metric has a sample.
        for content in (profile_of("a"), profile_of("a"), b"no profile", profile_of("a", time_nanos=_AHEAD)):
            server.submit(content)
        server.merge()
        document = server.client.get("/v1/openapi.json").json()
        metrics = exposed(server.client.get("/metrics").text)
    pages = {
        "agent-events.md": agent_events_page(),
        "commands.md": commands_page(),
        "events.md": events_page(),
        "metrics.md": metrics_page(metrics),
        "routes.md": routes_page(document),
        "settings.md": settings_page(),
    }
    return {FOLDER / name: text for name, text in pages.items()} | {
        PAGE: with_trackers(PAGE.read_text()),
        SCHEMA: with_settings(SCHEMA.read_text()),
        DASHBOARD: with_panels(DASHBOARD.read_text(), metrics),
    }
