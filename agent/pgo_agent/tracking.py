"""Track how long parts of a Python program take, from inside: `track` measures, `tracked_profile` tells.

An event below its threshold is only counted, in buckets of powers of two; one over it has its stack recorded.
The profile has the form of the latency trackers', with the tracker `track` and the key as `operation`.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import ParamSpec, Self, TypeVar, cast

from pgo_agent.beside import Function, Stack
from pgo_agent.profile_builder import DELAY_TYPES
from pgo_agent.stack_sampler import PythonProfileBuilder, stack_of

_SECOND = 1_000_000_000
_MOST_UNCOUNTED = 1024
_MOST_STACKS = 10_000
_BELOW = Function("(below the threshold)", "", 0)
_DROPPED = Function("(dropped)", "", 0)
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Event = tuple[str, int, FrameType, int]  # key, start (ns), the frame that tracks, thread


class _Tracked:
    """Events tracked since the last profile. The lock may be taken again by a signal's handler."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.in_flight: dict[int, _Event] = {}
        # Appending is atomic, so that an event below its threshold takes no lock.
        self.short: deque[tuple[str, int]] = deque()
        self.began, self.start = time.time_ns(), time.monotonic_ns()
        self.delays: dict[tuple[str, int, Stack], list[int]] = {}

    def add(self, key: str, delay: int, stack: Stack) -> None:
        """Add one event with its stack; `delay` is in ns."""
        with self.lock:
            self._add(key, delay.bit_length(), stack, [1, delay])

    def _add(self, key: str, bucket: int, stack: Stack, added: list[int]) -> None:
        place = key, bucket, stack
        if place not in self.delays and len(self.delays) >= _MOST_STACKS:
            place = "", bucket, ((_DROPPED, 0),)
        counts = self.delays.setdefault(place, [0, 0])
        counts[0] += added[0]
        counts[1] += added[1]

    def count_short(self) -> None:
        """Move what is in `short` to the rest."""
        together: dict[tuple[str, int], list[int]] = {}
        pop = self.short.popleft
        with self.lock:
            with suppress(IndexError):
                while True:
                    key, delay = pop()
                    place = key, delay.bit_length()
                    if place in together:
                        together[place][0] += 1
                        together[place][1] += delay
                    else:
                        together[place] = [1, delay]
            for (key, bucket), counts in together.items():
                self._add(key, bucket, ((_BELOW, 0),), counts)


_tracked = _Tracked()


def _forget_parent() -> None:
    global _tracked  # noqa: PLW0603 - the parent's events are the parent's
    _tracked = _Tracked()


os.register_at_fork(after_in_child=_forget_parent)


class track:  # noqa: N801 - read as a verb: with track("checkout"):
    """Measure a block or each call of a function, synchronous or not, under a key.

    Use it as `with track(key):`, `async with track(key):` or `@track(key)`. An event of at least `threshold`
    seconds has its stack recorded. An object is for one block at a time; a decorated function may be called
    from many threads and tasks. Keys are kept in memory, so use few.
    """

    __slots__ = ("_began", "_frame", "_key", "_threshold")

    def __init__(self, key: str, threshold: float = 0.001) -> None:
        self._key, self._threshold = key, threshold

    def __enter__(self) -> Self:
        self._begin(sys._getframe(1))  # noqa: SLF001 - documented, and there is no faster way
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._end()

    async def __aenter__(self) -> Self:
        self._begin(sys._getframe(1))  # noqa: SLF001 - as above
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._end()

    def __call__(self, function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        """Return the function, tracked."""
        key, threshold = self._key, self._threshold
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def tracked_async(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> object:
                with track(key, threshold):
                    return await function(*args, **kwargs)

            return cast("Callable[_Parameters, _Result]", tracked_async)

        @functools.wraps(function)
        def tracked(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            with track(key, threshold):
                return function(*args, **kwargs)

        return tracked

    def _begin(self, frame: FrameType) -> None:
        self._frame = frame
        self._began = began = time.monotonic_ns()
        _tracked.in_flight[id(self)] = self._key, began, frame, threading.get_ident()

    def _end(self) -> None:
        delay = time.monotonic_ns() - self._began
        frame = self._frame
        del self._frame
        known = _tracked
        known.in_flight.pop(id(self), None)
        if delay >= self._threshold * _SECOND:
            known.add(self._key, delay, stack_of(frame))
            return
        known.short.append((self._key, delay))
        if len(known.short) >= _MOST_UNCOUNTED:
            known.count_short()


def tracked_in_flight() -> list[tuple[str, float, list[str]]]:
    """Return what has begun and not ended: the key, the seconds since, and the functions, innermost first.

    The functions are those in which its thread is now; for a task that waits, the one that tracks.
    """
    now, threads = time.monotonic_ns(), sys._current_frames()  # noqa: SLF001 - documented
    found = []
    for key, began, frame, thread in sorted([*_tracked.in_flight.values()], key=lambda event: event[1]):
        innermost = threads.get(thread)
        place = innermost
        while place is not None and place is not frame:
            place = place.f_back
        stack = stack_of(innermost if place and innermost else frame)
        found.append((key, (now - began) / _SECOND, [function.name for function, _ in stack]))
    return found


def tracked_profile() -> bytes:
    """Return what ended since the last call as a gzipped pprof profile, in the latency trackers' form."""
    known = _tracked
    with known.lock:
        known.count_short()
        delays, known.delays = known.delays, {}
        began, start = known.began, known.start
        known.began, known.start = time.time_ns(), time.monotonic_ns()
        lasted = known.start - start
    builder = PythonProfileBuilder(DELAY_TYPES)
    builder.set_times(began, lasted, 1)
    for (key, bucket, stack), counts in delays.items():
        sample = builder.profile.sample.add(
            value=counts, location_id=[builder.location(*frame) for frame in stack]
        )
        sample.label.add(key=builder.text("tracker"), str=builder.text("track"))
        if key:
            sample.label.add(key=builder.text("operation"), str=builder.text(key))
        if stack[0][0] not in {_BELOW, _DROPPED}:
            sample.label.add(key=builder.text("pid"), num=os.getpid())
        latency, unit = 1 << bucket >> 1, builder.text("nanoseconds")
        sample.label.add(key=builder.text("latency"), num=latency, num_unit=unit)
    return builder.gzipped()
