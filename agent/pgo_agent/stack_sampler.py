"""The sampler for Python programs: looks at the stacks of all threads, and weighs them by their CPU time."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from threading import Event, Thread
from types import CodeType, FrameType

from pgo_agent.python_profile import Function, Stack, python_profile

_SECOND = 1_000_000_000
# Of a recursion, each depth is another stack: what is kept of each has to have an end.
_DEEPEST = 512


class StackSampler:
    """Samples each Python thread once in each 1/`rate` seconds of CPU time that it takes; Linux only.

    It looks `rate` times a second, from the thread that calls `sample`, whose own work isn't counted. Of a
    thread that hasn't taken as much CPU time since, as one that sleeps, it only looks at the clock. Of a
    stack of more than 512 frames, the outermost are left out.
    """

    def __init__(self, rate: float = 100.0) -> None:
        if not 0 < rate <= 1000:
            raise ValueError("rate must be between 0 and 1000 a second")
        self._period = int(_SECOND / rate)

    def sample(self, duration: float, until: Event) -> bytes:
        """See Sampler."""
        began, start = time.time_ns(), time.monotonic_ns()
        look = _Look(self._period)
        end, due = start + int(duration * _SECOND), start
        while (now := time.monotonic_ns()) < end:
            # What was missed, on a busy machine, is made up for by the threads' clocks.
            due = max(due + self._period, now)
            if until.wait((min(due, end) - now) / _SECOND):
                break
            look.again()
        return python_profile(look.stacks(), began, time.monotonic_ns() - start, self._period)


class _Look:
    """What was seen of the threads so far."""

    def __init__(self, period: int) -> None:
        self._period = period
        self._own = threading.get_ident()
        self._counts: Counter[tuple[tuple[int, int], ...]] = Counter()
        # By their ids, which are quick to hash; kept here, so that no other takes over an id.
        self._functions: dict[int, tuple[CodeType, Function]] = {}
        self._places: dict[tuple[int, int], tuple[int, int]] = {}
        self._counted = {thread: _cpu_time(thread) for thread in threading.enumerate()}

    def again(self) -> None:
        """Counts the stack of each thread, as often as it has taken another period of CPU time."""
        frames = sys._current_frames()  # noqa: SLF001 - documented, and the only way
        before, self._counted = self._counted, {}
        for thread in threading.enumerate():
            frame = frames.get(thread.ident or 0)
            if thread.ident == self._own or frame is None:
                continue
            counted = before.get(thread, 0)
            periods = max(0, _cpu_time(thread) - counted) // self._period
            if periods:
                self._counts[self._stack(frame)] += periods
            self._counted[thread] = counted + periods * self._period

    def stacks(self) -> dict[Stack, int]:
        """How often each stack was seen."""
        functions = self._functions
        return {
            tuple((functions[code][1], line) for code, line in stack): count
            for stack, count in self._counts.items()
        }

    def _stack(self, innermost: FrameType) -> tuple[tuple[int, int], ...]:
        stack: list[tuple[int, int]] = []
        frame: FrameType | None = innermost
        while frame is not None and len(stack) < _DEEPEST:
            code = frame.f_code
            if id(code) not in self._functions:
                name = f"{frame.f_globals.get('__name__', '?')}.{code.co_qualname}"
                function = Function(name, code.co_filename, code.co_firstlineno)
                self._functions[id(code)] = code, function
            place = id(code), frame.f_lineno or 0
            stack.append(self._places.setdefault(place, place))
            frame = frame.f_back
        return tuple(stack)


def _cpu_time(thread: Thread) -> int:
    """The CPU time that a thread has taken (ns); 0 if it isn't there any more.

    The clock of a thread as Linux numbers it, from its id: `time.pthread_getcpuclockid` gives the same, but
    may crash the process when the thread has just ended.
    """
    # Python 3.11 has the parent's id for the one thread of a forked child, which is its main thread.
    id_ = os.getpid() if thread is threading.main_thread() else thread.native_id
    if id_ is None:  # it is just being started
        return 0
    try:
        return time.clock_gettime_ns(~id_ << 3 | 6)
    except OSError:
        return 0
