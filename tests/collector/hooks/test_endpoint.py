"""The pauses that receivers ask for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pgo_collector.hooks.endpoint import retry_after_seconds

pytestmark = pytest.mark.any_store

NOW = datetime(2026, 11, 25, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 0),
        ("", 0),
        ("7", 7),
        ("-7", 0),
        ("soon", 0),
        ("Wed, 25 Nov 2026 00:00:30 GMT", 30),
        ("Wed, 25 Nov 2026 00:00:30 -0000", 30),  # says that its zone is unknown
        ("Tue, 24 Nov 2026 00:00:00 GMT", 0),
        ("Wed, 25 Nov 2026 99:00:00 GMT", 0),
    ],
)
def test_a_receiver_may_ask_for_a_pause_in_seconds_or_until_a_date(
    header: str | None, seconds: float
) -> None:
    assert retry_after_seconds(header, NOW) == seconds
    assert retry_after_seconds("9" * 20, NOW) <= 86_400
