"""A C program whose functions make known shares of its system calls, and what a tracker reports of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from pgo_agent.latency import Recorder

from tests.agent.latency.waiting import samples_of

SOURCE = Path(__file__).with_name("flood.c")
# The calls of each function, in percent.
SHARES = {"ten": 50, "six": 30, "three": 15, "one": 5}


def shares_of(recorder: Recorder) -> Mapping[str, float]:
    """Return the shares of the functions in the events that were reported, in percent."""
    found: Counter[str] = Counter()
    for sample in samples_of(recorder.profile()):
        for function in SHARES.keys() & {*sample.functions}:
            found[function] += sample.events
    assert found.total() > 0.98 * recorder.counts.as_json()["reported"]
    return {function: 100 * count / found.total() for function, count in found.items()}
