"""The numbers of releases, and the bounds that make the next one due."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pgo_collector.errors import NoSuchRelease
from pgo_collector.releases import records

NUMBER_PATTERN = "[1-9][0-9]{0,8}"

_NUMBER = re.compile(NUMBER_PATTERN)

Reason = Literal["first", "drift", "age", "request"]


def number_of(text: str) -> int:
    """Return the number in a request. Raises NoSuchRelease if no release can have it."""
    if _NUMBER.fullmatch(text) is None:
        raise NoSuchRelease(f"there is no release {text[:20]}")
    return int(text)


@dataclass(frozen=True, slots=True)
class ReleaseRule:
    """When the next release is due: below an overlap of edge weights (0 to 1), or after a number of days."""

    overlap: float
    days: float

    def reason(self, current: records.Release | None, overlap: float | None, now: datetime) -> Reason | None:
        """Return why a merge that differs from the current release is to be released; None if it isn't."""
        if current is None:
            return "first"
        if overlap is not None and overlap < self.overlap:
            return "drift"
        return "age" if self.is_over(current, now) else None

    def is_over(self, current: records.Release, now: datetime) -> bool:
        """Return whether a release has reached its maximum age."""
        return (now - current.time).total_seconds() > self.days * 86_400
