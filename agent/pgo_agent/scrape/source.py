"""The seam between what knows of targets and what scrapes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pgo_agent.scrape.rounds import Rounds
from pgo_agent.scrape.target import Target


class Source(Protocol):
    """Something that knows of targets."""

    async def targets(self) -> Sequence[Target]:
        """Those that there are now. Raises AgentError."""

    async def follow(self, rounds: Rounds) -> None:
        """Tells of all that come and go, until cancelled, or until none will."""
