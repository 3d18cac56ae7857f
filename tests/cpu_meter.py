"""The CPU time of processes over time, as the kernel counts it."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Event, Thread
from typing import Self

from tests.processes import stat_of

# A pass of the loop in `times_slower` on the machine that the tests' figures are of, in seconds.
_USUAL_PASS = 65e-9
_PASSES = 500_000


def times_slower() -> float:
    """Return how many times longer this machine takes now for Python's own work; at least 1."""
    total, began = 0, time.thread_time()
    for number in range(_PASSES):
        total += number
    return max(1.0, (time.thread_time() - began) / _PASSES / _USUAL_PASS)


def cpu_seconds_for(usual: float) -> float:
    """Return the CPU time that work may take here if `usual` seconds are its bound on a quick, quiet machine.

    It is three times as much: other programs share the caches of a busy machine, and there are machines that
    count as quickly and take twice as long for what is all over their memory.
    """
    return 3 * usual * _times_slower_at_first()


_times_slower_at_first = cache(times_slower)


class CpuMeter:
    """Reads the CPU time of a process and its children, with those that have ended, within the block."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._read: list[tuple[int, float]] = []
        self._ended = Event()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Self:
        self._note()  # the thread may be late
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._thread.join()

    def seconds(self, began: int, duration: int) -> float:
        """Return the CPU time in seconds from `began` (ns since 1970) on, for `duration` ns."""
        return self._at(began + duration) - self._at(began)

    def _at(self, time_: int) -> float:
        """Return the CPU time until a moment in seconds, interpolated between two readings."""
        after = bisect_left(self._read, (time_, 0.0))
        (earlier, before), (later, now) = self._read[after - 1], self._read[after]
        return before + (now - before) * (time_ - earlier) / (later - earlier)

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            self._note()
        self._note()

    def _note(self) -> None:
        self._read.append((time.time_ns(), self.taken()))

    def taken(self) -> float:
        """Return the CPU time so far, in seconds."""
        ticks = sum(_ticks(self._pid)) + sum(sum(_ticks(child)[:2]) for child in children_of(self._pid))
        return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def when_taken(seconds: float) -> Iterator[Event]:
    """Yield an event that is set when this process has taken this many more seconds of CPU time.

    A profile that is taken until then has as many samples on a busy machine as on an idle one.
    """
    end, taken, over = time.process_time() + seconds, Event(), Event()

    def watch() -> None:
        while time.process_time() < end and not over.wait(0.01):
            pass
        taken.set()

    watcher = Thread(target=watch)
    watcher.start()
    try:
        yield taken
    finally:
        over.set()
        watcher.join()


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started and that have not ended."""
    try:
        by_thread = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # a thread has just ended
        return children_of(pid)
    return [int(child) for children in by_thread for child in children.split()]


def _ticks(pid: int) -> list[int]:
    """Return the user and system time of a process, and of its children that have ended."""
    try:
        return [*map(int, stat_of(pid)[11:15])]
    except OSError:  # it has just ended
        return [0, 0, 0, 0]
