"""Count the results of a round of scrapes, for the log and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pgo_agent.errors import ScrapeFailed
from pgo_agent.scrape.submit_queue import SubmitQueue


@dataclass(frozen=True, slots=True)
class Failure:
    """A profile that a target didn't give, and why."""

    target: str
    type: str
    error: ScrapeFailed

    def __str__(self) -> str:
        return f"{self.target}: {self.type}: {self.error}"

    def as_json(self) -> dict[str, str]:
        """Return the failure as a JSON object."""
        error = self.error
        return {"target": self.target, "type": self.type, "reason": error.reason, "detail": error.detail}


@dataclass(slots=True)
class RoundResults:
    """The results of one round.

    `scraped` counts profiles. `late` counts scrapes that were skipped because an earlier one took too long.
    """

    scraped: int = 0
    late: int = 0
    failures: list[Failure] = field(default_factory=list)

    def add(self, scraped: int, failures: Sequence[Failure]) -> None:
        """Add the results of scraping one target: the number of profiles, and the failures."""
        self.scraped += scraped
        self.failures += failures

    def summary(self, targets: int, queue: SubmitQueue) -> dict[str, Any]:
        """Return this round's counts, with the number of targets and the queue's counts since the start."""
        return {
            "targets": targets,
            "scraped": self.scraped,
            "failed": dict(Counter(failure.error.reason for failure in self.failures)),
            "late": self.late,
            "sent": queue.sent,
            "waiting": queue.waiting,
            "dropped": {str(why): count for why, count in queue.dropped.items()},
        }


def summary_text(summary: Mapping[str, Any]) -> str:
    """Return a summary as one line of text."""
    parts = (
        f"{name}: {', '.join(f'{count} {why}' for why, count in value.items()) or 0}"
        if isinstance(value, dict)
        else f"{name}: {value}"
        for name, value in summary.items()
    )
    return "; ".join(parts)
