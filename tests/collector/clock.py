"""Days as collectors count them, by UTC, for tests of what is counted in a day."""

from __future__ import annotations

import time

from tests.faults.stacks import DAY, SECOND

_LONG = 120 * SECOND


def today() -> int:
    """Return the midnight at the beginning of this UTC day, in ns since 1970."""
    return time.time_ns() // DAY * DAY


def wait_for_a_long_day() -> None:
    """Wait until the next midnight is minutes away: nearly always no time."""
    while DAY - time.time_ns() % DAY < _LONG:
        time.sleep(1)
