"""Sample the stacks of all Python threads, weighted by their CPU time, and write them as pprof.

`StackSampler` has them read from a process beside this one (`beside`), since a thread of this process sees
the others only when they let go of the interpreter's lock. Where that can't be, `_Sampling` looks at the
threads itself. `python_profile` turns the counted stacks into a profile.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from threading import Event, Thread
from types import CodeType, FrameType
from typing import Protocol

from pgo_agent.beside import Function, NotReadable, ReaderBeside, Samples, Stack
from pgo_agent.profile_builder import CPU_TYPES, ProfileBuilder

_SECOND = 1_000_000_000
# Each depth of a recursion is another stack, so the depth that is kept needs a bound.
_MAX_FRAMES = 512


class StackSampler:
    """Sample each Python thread about once per 1/`rate` seconds of CPU time that it uses. Linux only.

    A process beside this one reads the stacks of the threads that run, at random moments, `rate` times a
    second. Where the system doesn't let it, a thread of this process looks at them instead: it sees a thread
    only when that lets go of the interpreter's lock, so the time before a wait counts for the wait. The
    profile's comment says which it was. The thread that calls `sample` isn't sampled. A stack keeps its 512
    innermost frames.
    """

    def __init__(self, rate: float = 100.0) -> None:
        if not 0 < rate <= 1000:
            raise ValueError("rate must be between 0 and 1000 a second")
        self._period = int(_SECOND / rate)

    def sample(self, duration: float, until: Event) -> bytes:
        """Return a gzipped pprof CPU profile of `duration` seconds, as `Sampler` documents."""
        try:
            reader: Reader = ReaderBeside(self._period)
        except NotReadable as reason:
            reader = _ReaderInside(self._period, str(reason))
        began, start = time.time_ns(), time.monotonic_ns()
        samples = reader.read(duration, until)
        return python_profile(samples, began, time.monotonic_ns() - start, self._period, reader.comment)


class Reader(Protocol):
    """A way to sample the threads of this process."""

    comment: str

    def read(self, duration: float, until: Event) -> Samples:
        """Return the stacks that were seen within `duration` seconds, or until `until` is set."""


class _ReaderInside:
    """Look at the threads from the thread that calls `read`."""

    def __init__(self, period: int, reason: str) -> None:
        self._period = period
        self.comment = f"Python stacks: seen from inside the process, so waits count too much: {reason}"

    def read(self, duration: float, until: Event) -> Samples:
        start = time.monotonic_ns()
        sampling = _Sampling(self._period)
        end, due = start + int(duration * _SECOND), start
        while (now := time.monotonic_ns()) < end:
            # If the machine is busy and a look comes late, the threads' CPU clocks make up for it.
            due = max(due + self._period, now)
            if until.wait((min(due, end) - now) / _SECOND):
                break
            sampling.look()
        return sampling.samples()


class _Sampling:
    """The stacks of this process's threads, counted."""

    def __init__(self, period: int) -> None:
        self._period = period
        self._own = threading.get_ident()
        self._counts: Counter[tuple[tuple[int, int], ...]] = Counter()
        # Keyed by id(code), which hashes fast. The code is kept alive, so that no other gets its id.
        self._functions: dict[int, tuple[CodeType, Function]] = {}
        self._lines: dict[tuple[int, int], tuple[int, int]] = {}
        self._counted_ns = {thread: _cpu_time(thread) for thread in threading.enumerate()}

    def look(self) -> None:
        """Count each thread's stack once per period of CPU time that it has used since the last look."""
        frames = sys._current_frames()  # noqa: SLF001 - documented, and there is no other way
        before, self._counted_ns = self._counted_ns, {}
        for thread in threading.enumerate():
            frame = frames.get(thread.ident or 0)
            if thread.ident == self._own or frame is None:
                continue
            counted = before.get(thread, 0)
            periods = max(0, _cpu_time(thread) - counted) // self._period
            if periods:
                self._counts[self._stack(frame)] += periods
            self._counted_ns[thread] = counted + periods * self._period

    def samples(self) -> Samples:
        """Return how often each stack was sampled, and the CPU time for which it stands (ns)."""
        functions = self._functions
        return {
            tuple((functions[code][1], line) for code, line in stack): (count, count * self._period)
            for stack, count in self._counts.items()
        }

    def _stack(self, innermost: FrameType) -> tuple[tuple[int, int], ...]:
        stack: list[tuple[int, int]] = []
        frame: FrameType | None = innermost
        while frame is not None and len(stack) < _MAX_FRAMES:
            code = frame.f_code
            if id(code) not in self._functions:
                self._functions[id(code)] = code, _function(frame)
            line = id(code), frame.f_lineno or 0
            stack.append(self._lines.setdefault(line, line))
            frame = frame.f_back
        return tuple(stack)


def stack_of(innermost: FrameType) -> Stack:
    """Return the functions and lines of a stack, innermost first, 512 at most."""
    stack: list[tuple[Function, int]] = []
    frame: FrameType | None = innermost
    while frame is not None and len(stack) < _MAX_FRAMES:
        stack.append((_function(frame), frame.f_lineno or 0))
        frame = frame.f_back
    return tuple(stack)


def _function(frame: FrameType) -> Function:
    code = frame.f_code
    name = f"{frame.f_globals.get('__name__', '?')}.{code.co_qualname}"
    return Function(name, code.co_filename, code.co_firstlineno)


def _cpu_time(thread: Thread) -> int:
    """Return the CPU time that a thread has used (ns); 0 if the thread has ended.

    Computes Linux's number of the thread's clock from its id. `time.pthread_getcpuclockid` gives the same
    number, but can crash the process if the thread has just ended.
    """
    # In a forked child, Python 3.11 keeps the parent's native_id for the main thread, the only one.
    id_ = os.getpid() if thread is threading.main_thread() else thread.native_id
    if id_ is None:  # the thread is just starting
        return 0
    try:
        return time.clock_gettime_ns(~id_ << 3 | 6)
    except OSError:
        return 0


def python_profile(samples: Samples, began: int, duration: int, period: int, comment: str) -> bytes:
    """Return stacks, their sample counts and their CPU times (ns) as a gzipped pprof profile.

    `began` is ns since 1970, `duration` is in ns, and `period` is the CPU time between two samples (ns).
    Locations have lines only, no addresses and no mappings.
    """
    builder = PythonProfileBuilder(CPU_TYPES)
    builder.set_times(began, duration, period)
    builder.profile.comment.append(builder.text(comment))
    for stack, values in samples.items():
        builder.profile.sample.add(value=values, location_id=[builder.location(*frame) for frame in stack])
    return builder.gzipped()


class PythonProfileBuilder(ProfileBuilder):
    """Add locations of Python functions to a profile on first use."""

    def location(self, function: Function, line: int) -> int:
        """Return the id of a line in a function."""
        key = function, line
        if key not in self._ids:
            id_ = self._ids[key] = len(self.profile.location) + 1
            name, file, start_line = function
            self.profile.location.add(id=id_).line.add(
                function_id=self.function(name, name, file, start_line), line=line
            )
        return self._ids[key]
