"""When an event is tried again: pure functions of how often it failed and of what the receiver asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 600.0
# What a receiver may ask for; it could also be wrong about the year.
_LONGEST_ASKED_SECONDS = 86_400.0


def pause_seconds(failures: int, chance: float) -> float:
    """How long to wait after so many failures in a row, of which the last is just over.

    Twice as long each time, and then between half and all of it, as `chance` says, from 0 to 1: what failed
    together is not to come back together.
    """
    longest = min(_FIRST_SECONDS * 2.0 ** min(failures - 1, 30), _LONGEST_SECONDS)
    return longest * (1 + chance) / 2


def asked_seconds(header: str | None, now: datetime) -> float:
    """What a Retry-After header asks for (RFC 9110, 10.2.3: seconds or a date); 0 if that isn't clear."""
    text = (header or "").strip()
    try:
        seconds = float(int(text)) if text.isdecimal() else _seconds_until(text, now)
    except (ValueError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), _LONGEST_ASKED_SECONDS)


def _seconds_until(date: str, now: datetime) -> float:
    moment = parsedate_to_datetime(date)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds()
