"""When to send again, and how long to wait before: pure functions of an answer and the number of the attempt.

This is less code than the wiring of a library for it would be, and an agent lives in other people's
programs, where each dependency is one that they may have in another version.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

# The server, or a proxy before it, says "not now"; every other status is about the request itself.
PASSING_STATUSES = frozenset({408, 425, 429, *range(500, 600)})
LONGEST_BACKOFF = 60.0


def pause(attempt: int, backoff: float, retry_after: float) -> float:
    """Seconds between a failed `attempt` (the first is 1) and the next: exponential, with full jitter.

    Full jitter, since a collector that restarts would else meet its whole fleet at once, again and again.
    It comes on top of what the server asked for, which is the same for everybody.
    """
    ceiling = min(backoff * 2.0 ** min(attempt - 1, 30), LONGEST_BACKOFF)
    return retry_after + random.uniform(0, ceiling)  # noqa: S311 - spreads load, guards nothing


def retry_after_seconds(header: str | None, now: datetime) -> float:
    """What a Retry-After header asks for (RFC 9110, 10.2.3: seconds or a date), 0 if that isn't clear."""
    if not header:
        return 0.0
    try:
        if header.isdecimal():
            return float(int(header))
        return _seconds_until(parsedate_to_datetime(header), now)
    except (ValueError, OverflowError):
        return 0.0


def _seconds_until(date: datetime, now: datetime) -> float:
    # A date with the zone "-0000" is parsed as naive; the RFC has only GMT.
    moment = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
