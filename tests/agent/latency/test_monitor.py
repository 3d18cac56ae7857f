"""The answers that readers of a running tracker get: single events as they happen, and what they missed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from pgo_agent.errors import ToolFailed
from pgo_agent.latency import TRACKERS, Monitor, TrackerSettings
from pgo_agent.latency import monitor as monitoring

from tests.agent.latency.test_bcc_feed import FORK, Heard, Trackers, begin, end
from tests.agent.latency.waiting import MS, wait_until
from tests.agent.stand_ins.tools import StandInKernel

SETTINGS = TrackerSettings.parse({"threshold": "1ms", "timeout": "1s"})


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_ins: None) -> StandInKernel:  # noqa: ARG001 - it sets PATH
    return StandInKernel(tmp_path, monkeypatch).has((FORK, *TRACKERS["offcpu"].tracepoints))


@pytest.fixture
def monitor(kernel: StandInKernel) -> Iterator[Monitor]:
    monitor = Monitor(TRACKERS["offcpu"], SETTINGS, Trackers(kernel.python()))
    monitor.start()
    yield monitor
    monitor.session.stop()


def test_each_stream_has_events_and_what_is_late(kernel: StandInKernel, monitor: Monitor) -> None:
    one, other, closed = (monitor.open_stream() for _ in range(3))
    monitor.close_stream(closed)
    kernel.happens(begin(1, ago=2 * 10**9, kernel=[]))
    for stream in (one, other):
        found = stream.get(60)
        assert found
        assert (found[0], found[1]["comm"], found[1]["functions"]) == ("late", "shop", [])
        assert found[1]["delay_ns"] > 10**9
    kernel.happens(end(3 * MS, id=1, kernel=[], user=[0x1000]))
    found = one.get(60)
    assert found
    assert (found[0], found[1]["delay_ns"], found[1]["functions"]) == ("event", 3 * MS, ["0x1000"])
    assert closed.get(0) is None


def test_a_slow_reader_is_told_how_much_it_missed(
    kernel: StandInKernel, monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring, "_MOST_UNREAD", 2)
    stream, heard = monitor.open_stream(), Heard("offcpu")
    monitor.session.listen(heard)
    kernel.happens(*[begin(id_, ago=2 * 10**9) for id_ in range(1, 6)])
    wait_until(lambda: len(heard.late) == 5)
    found = [stream.get(0), stream.get(0), stream.get(0)]
    assert [one and one[1]["skipped"] for one in found] == [3, 0, None]


def test_without_the_tools_for_names_events_have_none_and_profiles_fail(
    kernel: StandInKernel, monitor: Monitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "llvm-cxxfilt"
    tool.write_text("#!/bin/sh\necho out of memory >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    kernel.happens(begin(1))
    (waits,) = monitor.in_flight()
    assert (waits["comm"], waits["functions"]) == ("shop", [])
    recorder = monitor.record(0.1, Event())
    with pytest.raises(ToolFailed, match="llvm-cxxfilt: out of memory"):
        recorder.profile()
