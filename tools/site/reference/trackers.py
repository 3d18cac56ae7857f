"""The table of latency trackers in docs/latency.md, from the agent's descriptions."""

from __future__ import annotations

import re
from pathlib import Path

from pgo_agent.latency import TRACKERS

from tools.site.reference.markdown import NOTE, code, table

PAGE = Path(__file__).parents[3] / "docs" / "latency.md"
_TABLE = re.compile(rf"(?<={re.escape(NOTE)}\n\n)(?:\|.*\n)+")


def trackers_table() -> str:
    """Return the table of all trackers."""
    rows = (
        [
            code(tracker.name),
            tracker.title,
            tracker.measures,
            tracker.stack,
            tracker.labels_text,
            code(tracker.profile_type),
            "bcc, bpftrace" if tracker.script else "bcc",
        ]
        for tracker in TRACKERS.values()
    )
    head = ["tracker", "of", "measures", "stack", "labels", "type in the collector", "runs with"]
    return table(head, rows) + "\n"


def with_trackers(text: str) -> str:
    """Return the text of the page with its table replaced. Raises ValueError if it isn't there once."""
    made, count = _TABLE.subn(lambda _: trackers_table(), text)
    if count != 1:
        raise ValueError(f"{PAGE.name} has {count} tables of trackers")
    return made
