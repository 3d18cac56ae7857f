"""Squeeze finds planted faults: a server that doesn't answer, and one that dies."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaign.report import Findings
from tests.campaign.squeeze import LIMIT_BYTES, Attack, Squeeze, bomb, squeezed
from tests.control_group import ControlGroup, NoControlGroup, control_group
from tests.server import Server


@pytest.fixture
def group() -> Iterator[ControlGroup]:
    try:
        with control_group(LIMIT_BYTES) as group:
            yield group
    except NoControlGroup as reason:
        pytest.skip(f"no group with a limit on memory can be made: {reason}")


def freeze(squeeze: Squeeze) -> None:
    squeeze.collector.signal_group(signal.SIGSTOP)
    time.sleep(2 * squeeze.gap_seconds + 1)  # an answer that was on its way may come in the middle
    squeeze.collector.signal_group(signal.SIGCONT)


def kill(squeeze: Squeeze) -> None:
    squeeze.collector.signal_group(signal.SIGKILL)
    time.sleep(0.5)


def nothing(_: Squeeze) -> None:
    time.sleep(0.5)


@pytest.mark.system("root")
def test_a_server_that_is_silent_or_dead_is_found(tmp_path: Path, group: ControlGroup) -> None:
    findings = Findings()
    with squeezed(1, tmp_path, group, findings) as squeeze:
        squeeze.play([Attack("nothing", nothing)], 1)
        assert not findings.faults
        squeeze.gap_seconds = 2
        squeeze.play([Attack("freeze", freeze)], 1)
        (fault,) = findings.faults
        assert "a well-behaved client's submits failed for" in fault
        assert "--seed 1, attack freeze" in fault
        squeeze.play([Attack("kill", kill)], 1)
        assert any("the server died" in fault for fault in findings.faults)
        assert findings.figures["deaths of the server"] == "1"
        assert group.pids()
    assert not group.pids()


@pytest.mark.system("root")
def test_the_limit_is_that_of_all_processes_together(tmp_path: Path, group: ControlGroup) -> None:
    with squeezed(1, tmp_path, group, Findings()) as squeeze:
        assert {*squeeze.collector.members()} == {*group.pids()}
        assert (
            squeeze.request("POST", "/v1/submit", Server.submit_key, bomb(10, 3, 20, 5), service="small")
            == 204
        )
    assert 0 < group.peak_bytes <= LIMIT_BYTES
