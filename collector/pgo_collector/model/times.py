"""Times: the UTC days by which blobs are stored, rolled up, retained and counted, and times as text."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

DAY_NANOS = 86_400 * 10**9
# A profile that says it is of 1970 has a time in another unit, as old versions of py-spy wrote it.
END_OF_1970 = 365 * DAY_NANOS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def boot_seconds() -> float:
    """Return the seconds since the machine was started, of a clock that goes on while it sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def format_time(time_nanos: int) -> str:
    """Return a time in ns since 1970 as RFC 3339 text in UTC; ns are written only where they aren't 0."""
    seconds, nanos = divmod(time_nanos, 10**9)
    fraction = f".{nanos:09}" if nanos else ""
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}{fraction}Z"
