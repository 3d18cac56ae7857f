"""Days as collectors count them, by UTC, for tests of what is counted in a day."""

from __future__ import annotations

import time

from tests.faults.stacks import DAY, SECOND

_LONG = 120 * SECOND


def today() -> int:
    """The midnight that this day began with, in ns since 1970."""
    return time.time_ns() // DAY * DAY


def wait_for_a_long_day() -> None:
    """Returns when there are minutes to the next midnight: nearly always at once."""
    while DAY - time.time_ns() % DAY < _LONG:
        time.sleep(1)
