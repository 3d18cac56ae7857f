"""Outlets: traces are written together, and none waits once a batch is full or the server stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
from pgo_collector.traces.outlets import Outlet, RequestTrace
from pgo_collector.traces.spans import Span

pytestmark = pytest.mark.any_store

_HOUR = 3600.0


def trace(number: int) -> RequestTrace:
    root = Span(f"{number:016x}", "", "http", "GET /", 0, 1, {})
    return RequestTrace(f"{number:032x}", "shop", 204, [root])


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Written:
    """Records the traces of each write of an outlet."""

    def __init__(self) -> None:
        self.batches: list[list[RequestTrace]] = []

    def write(self, traces: Sequence[RequestTrace]) -> None:
        self.batches.append([*traces])


def test_traces_that_come_one_after_another_are_written_together() -> None:
    written = Written()
    outlet = Outlet("test", written.write, 1000, _HOUR)
    traces = [trace(number) for number in range(10)]
    for each in traces:
        outlet.put(each)
        time.sleep(0.01)  # the thread has its turn
    outlet.close()
    assert written.batches == [traces]
    assert (outlet.kept, outlet.dropped) == (10, 0)


@pytest.mark.parametrize("most", [1000, 4])
def test_a_full_batch_is_written_at_once(most: int) -> None:
    written = Written()
    outlet = Outlet("test", written.write, most, _HOUR)
    full = min(64, most)
    outlet.put(trace(0))
    time.sleep(0.05)  # the thread takes it, and waits for others
    for number in range(1, full + 1):
        outlet.put(trace(number))
    wait_until(lambda: outlet.kept >= full)  # one more if the thread had taken the first one already
    assert outlet.kept + outlet.dropped <= full + 1
    outlet.close()
    assert outlet.kept + outlet.dropped == full + 1


def test_a_trace_that_comes_alone_is_written_soon() -> None:
    written = Written()
    outlet = Outlet("test", written.write, 1000)
    outlet.put(trace(1))
    wait_until(lambda: outlet.kept == 1)
    outlet.close()
    assert written.batches == [[trace(1)]]
