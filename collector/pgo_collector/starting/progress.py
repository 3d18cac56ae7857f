"""The progress of a start, which `/readyz` tells meanwhile."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Progress:
    """The progress of a start: its present step, and how many of a total are done; the total is 0 if unknown.

    It is stuck while it waits for what may be away for long. Other threads may read it at any time.
    """

    step: str = "opening the catalog"
    done: int = 0
    total: int = 0
    is_stuck: bool = False

    def __str__(self) -> str:
        return f"{self.step}: {self.done:,} of {self.total:,}" if self.total else self.step

    def begin(self, step: str, total: int = 0, *, is_stuck: bool = False) -> None:
        """Begin the next step."""
        self.step, self.done, self.total, self.is_stuck = step, 0, total, is_stuck

    def advance(self, count: int = 1) -> None:
        """Count this number as done."""
        self.done += count
