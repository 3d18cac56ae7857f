"""What came of a round: counts for a log, and JSON for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pgo_agent.errors import ScrapeFailed
from pgo_agent.scrape.dispatch import Dispatch


@dataclass(frozen=True, slots=True)
class Failure:
    """A profile that a target didn't give."""

    target: str
    type: str
    error: ScrapeFailed

    def __str__(self) -> str:
        return f"{self.target}: {self.type}: {self.error}"

    def as_json(self) -> dict[str, str]:
        """For programs."""
        error = self.error
        return {"target": self.target, "type": self.type, "reason": error.reason, "detail": error.detail}


@dataclass(slots=True)
class Tally:
    """`scraped` counts profiles; `late` the scrapes that were left out since those before took too long."""

    scraped: int = 0
    late: int = 0
    failures: list[Failure] = field(default_factory=list)

    def add(self, scraped: int, failures: Sequence[Failure]) -> None:
        """How many profiles a scrape of a target gave, and those that it didn't."""
        self.scraped += scraped
        self.failures += failures

    def summary(self, targets: int, dispatch: Dispatch) -> dict[str, Any]:
        """With how many targets there are, and what became of all profiles since the start."""
        return {
            "targets": targets,
            "scraped": self.scraped,
            "failed": dict(Counter(failure.error.reason for failure in self.failures)),
            "late": self.late,
            "sent": dispatch.sent,
            "waiting": dispatch.waiting,
            "dropped": {str(why): count for why, count in dispatch.dropped.items()},
        }


def in_words(summary: Mapping[str, Any]) -> str:
    """A summary as a line of text."""
    parts = (
        f"{name}: {', '.join(f'{count} {why}' for why, count in value.items()) or 0}"
        if isinstance(value, dict)
        else f"{name}: {value}"
        for name, value in summary.items()
    )
    return "; ".join(parts)
