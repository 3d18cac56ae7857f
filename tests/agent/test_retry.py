"""Test how long the client waits: Retry-After, and the growth and spread of its own delays."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pgo_agent.retry import LONGEST_BACKOFF, retry_after_seconds, retry_delay

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 0),
        ("", 0),
        ("0", 0),
        ("120", 120),
        ("Sun, 01 Mar 2026 12:01:30 GMT", 90),
        ("Sun, 01 Mar 2026 12:01:30 -0000", 90),
        ("Sun, 01 Mar 2026 14:01:30 +0200", 90),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0),
        ("soon", 0),
        ("-5", 0),
        ("1.5", 0),
        ("9" * 400, 0),
        ("9" * 5000, 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, seconds: float) -> None:
    assert retry_after_seconds(header, NOW) == seconds


def test_pauses_double_up_to_a_ceiling_and_are_spread_below_it() -> None:
    for attempt, ceiling in [(1, 2.0), (2, 4.0), (4, 16.0), (7, LONGEST_BACKOFF), (5000, LONGEST_BACKOFF)]:
        pauses = [retry_delay(attempt, backoff=2.0, retry_after=0.0) for _ in range(1000)]
        assert 0 <= min(pauses) < 0.1 * ceiling
        assert 0.9 * ceiling < max(pauses) <= ceiling


def test_what_the_server_asks_for_is_the_least() -> None:
    pauses = [retry_delay(1, backoff=2.0, retry_after=30.0) for _ in range(100)]
    assert min(pauses) >= 30
    assert max(pauses) <= 32
    assert len(set(pauses)) > 1
