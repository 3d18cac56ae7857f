"""Settings of a tracker, and how durations are written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.latency import TrackerSettings, format_ns, parse_ns


def test_without_anything_the_threshold_is_a_millisecond() -> None:
    assert TrackerSettings.parse({}).as_json() == {
        "threshold": "1ms",
        "timeout": "0ns",
        "comms": (),
        "executables": (),
        "pids": (),
        "cgroups": (),
        "wakers": False,
        "events": 1,
    }


def test_a_change_leaves_the_rest() -> None:
    settings = TrackerSettings.parse({"threshold": "5ms", "pids": [1]})
    assert settings.changed({"timeout": "1.5s"}) == TrackerSettings(
        threshold=5_000_000, timeout=1_500_000_000, pids=(1,)
    )


@given(st.integers(0, 3600 * 10**9))
def test_durations_are_read_as_they_are_written(duration: int) -> None:
    text = format_ns(duration)
    if len(text.rstrip("nums")) <= 9:
        assert parse_ns(text) == duration


@pytest.mark.parametrize(
    ("text", "duration"), [("0", 0), ("5ms", 5_000_000), ("0.5us", 500), ("3600s", 3600 * 10**9)]
)
def test_durations(text: str, duration: int) -> None:
    assert parse_ns(text) == duration


@pytest.mark.parametrize(
    "given",
    [
        {"threshold": 5},
        {"threshold": "5"},
        {"threshold": "-1ms"},
        {"threshold": "3601s"},
        {"threshold": "9" * 400 + "s"},
        {"timeout": "soon"},
        {"comms": "postgres"},
        {"comms": ["sixteen-letters!"]},
        {"comms": [""]},
        {"comms": ["a\0b"]},
        {"comms": ["a"] * 65},
        {"executables": ["../x"]},
        {"cgroups": ["system.slice/../.."]},
        {"pids": ["1"]},
        {"pids": [0]},
        {"pids": [True]},
        {"wakers": 1},
        {"events": 0},
        {"events": 1001},
        {"treshold": "1ms"},
    ],
)
def test_anything_else_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        TrackerSettings.parse(given)
