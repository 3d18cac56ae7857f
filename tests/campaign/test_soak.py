"""Soak finds a planted fault: something that grows with every request."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.collector import Collector
from tests.campaign.report import Findings
from tests.campaign.soak import SETTINGS, Soak, Trend, Visitor, known, merge, quantities
from tests.campaign.soak import submit_of_a_steady_service as submit


def leak(visitor: Visitor) -> None:
    """Send a request, and leave a file."""
    merge(visitor)
    number = visitor.soak.new_number()
    (visitor.soak.collector.data / "rows" / f"leak-{number}").touch()


@pytest.mark.exhaustive
def test_what_grows_is_found_and_nothing_else(tmp_path: Path) -> None:
    with Collector(tmp_path / "home", known(SETTINGS)) as collector:
        soak = Soak(collector, 1, Findings(), actions=[(1, leak), (1, submit)])
        soak.play(4)
        assert quantities(collector)["memory of the server"] > 10
        planted = len([*(collector.data / "rows").glob("leak-*")])
    trends = {trend.name: trend for trend in soak.trends()}
    leaked = trends["files elsewhere"]
    # It leaves a file at every second request; where few are answered, files of rows add to that.
    assert leaked.per_thousand > 300, leaked
    assert leaked.rise < planted + leaked.allowed, (leaked, planted)
    assert not leaked._replace(allowed=5).is_flat
    assert trends["processes"].is_flat
    assert not soak.findings.faults


def test_noise_is_flat_and_a_slope_in_noise_is_not() -> None:
    noise = [(operation, 100 + operation * 7 % 11) for operation in range(200)]
    assert Trend.of("noise", "MiB", 1, noise).is_flat
    rising = [(operation, value + operation / 10) for operation, value in noise]
    trend = Trend.of("rising", "MiB", 1, rising)
    assert not trend.is_flat
    assert 90 < trend.per_thousand < 110
    assert Trend.of("rising", "MiB", 20, rising).is_flat


def test_a_rise_before_the_second_half_is_a_warm_up() -> None:
    points = [(operation, min(operation, 80)) for operation in range(200)]
    assert Trend.of("warm", "MiB", 0.1, points).is_flat
