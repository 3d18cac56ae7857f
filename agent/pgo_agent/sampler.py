"""The seam between what profiles a process and what sends the profiles."""

from __future__ import annotations

from threading import Event
from typing import Protocol


class Sampler(Protocol):
    """Something that can profile the process that it is in."""

    def sample(self, duration: float, until: Event) -> bytes:
        """The pprof CPU profile of the next `duration` seconds, or of those until `until` is set.

        Blocks for as long, on a thread of its caller. What it raises is logged, and no profile is sent.
        """
