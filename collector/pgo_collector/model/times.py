"""Days in UTC, by which blobs are filed, rolled up, kept and counted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

DAY_NANOS = 86_400 * 10**9


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def written(time_nanos: int) -> str:
    """A time in ns since 1970."""
    seconds, nanos = divmod(time_nanos, 10**9)
    fraction = f".{nanos:09}" if nanos else ""
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}{fraction}Z"
