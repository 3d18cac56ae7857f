"""A request that isn't done, and what it is told."""

from __future__ import annotations


class Refusal(Exception):
    """Answered with `status` and `reason`."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason
