"""Events that come faster than they can be read, by each backend: what is reported is as all of them are."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from pgo_agent.latency import TrackerBackend, tracker_backends
from pgo_agent.latency.bcc_feed import BccTrackers

from tests.agent.busy import needs_gcc
from tests.agent.latency.flooding import SHARES, SOURCE, shares_of
from tests.agent.latency.waiting import needs_tracker, tracking

_SECONDS = 5.0

pytestmark = needs_gcc


@pytest.fixture(params=[pytest.param(of, marks=pytest.mark.alike(1)) for of in tracker_backends()])
def backend(request: pytest.FixtureRequest) -> TrackerBackend:
    needs_tracker("syscall", request.param)
    return tracker_backends()[request.param]


def test_what_is_reported_of_a_flood_has_its_shares(backend: TrackerBackend, tmp_path: Path) -> None:
    """By bcc it is all. By bpftrace, each event has the same chance; the others are counted."""
    binary = tmp_path / "flood"
    subprocess.run(["gcc", "-O1", "-fno-omit-frame-pointer", "-o", binary, SOURCE], check=True)
    with subprocess.Popen([binary], stdout=subprocess.PIPE) as flood:
        assert flood.stdout is not None
        flood.stdout.readline()
        try:
            settings = {"threshold": "0", "pids": [flood.pid]}
            with tracking("syscall", settings, backend) as (_, recorder):
                time.sleep(_SECONDS)
        finally:
            flood.kill()
    counts = recorder.counts.as_json()
    assert counts["seen"] == counts["reported"] + counts["below"] + counts["dropped"]
    assert counts["seen"] == sum(recorder.histogram.counts.values())
    if isinstance(backend, BccTrackers):
        assert counts["reported"] > 0.98 * counts["seen"]
    assert shares_of(recorder) == pytest.approx(SHARES, abs=2 if isinstance(backend, BccTrackers) else 5)
