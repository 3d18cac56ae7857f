"""Keep what a tracker counts for a time, and turn it into a pprof profile, or name the functions of a stack.

The sample types of a profile are contentions/count and delay/nanoseconds. Each sample has the labels
`tracker` and `latency`: the lower bound (ns) of the bucket of a power of two that its events are in. Events
below the threshold, which have no stack, are samples of one frame; so are dropped ones. So the counts by
`latency` are the histogram of all events, also after profiles are merged.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pgo_agent.latency.histogram import Histogram, lower_bound
from pgo_agent.latency.tick import Counts, Happening, RawStack, Tick, Wait
from pgo_agent.latency.trackers import Labels
from pgo_agent.native import (
    BY_CALL_FRAMES,
    Frame,
    MemoryMaps,
    NativeProfileBuilder,
    Stack,
    function_names,
    stacks_comment,
)
from pgo_agent.profile_builder import DELAY_TYPES

BELOW = "(below the threshold)"
DROPPED = "(dropped)"
LOST = "(stack lost)"
SEPARATOR = "--"
_MOST_DELAYS = 20_000  # in a profile
_MOST_KNOWN = 20_000  # raw stacks whose frames are remembered
_MOST_PROCESSES = 1000
_MOST_NAMES = 50_000
_READ_AGAIN_SECONDS = 10.0  # a process may have loaded a library since, or become another program
# What is on top of a stack because it is taken: a tracker's program with its callers in the kernel, or the
# interrupt that a thread gets when it comes back to a CPU. The thread called none of it.
_OWN_FRAME = re.compile(r"bpf_prog_\w+|(?:__)?bpf_trace_\w+|__traceiter_\w+|asm_sysvec_irq_work")
_MOST_OWN_FRAMES = 8


class Delay(NamedTuple):
    """Events with the same stack, labels and bucket; a `pid` of 0 stands for any process."""

    stack: Stack
    labels: Labels
    bucket: int


def frameless(name: str) -> Stack:
    """Return the stack of events that have none: a single frame with a name."""
    return Stack("", 0, 0, (Frame(0, None, name),))


def latency_profile(
    tracker: str,
    began: int,
    duration: int,
    delays: Mapping[Delay, tuple[int, int]],
    comments: Iterable[str] = (),
) -> bytes:
    """Return a gzipped pprof profile of events: each Delay with its number and its total delay (ns).

    `began` is in ns since 1970, `duration` in ns. Raises ToolFailed if functions can't be looked up.
    """
    builder = NativeProfileBuilder((delay.stack for delay in delays), DELAY_TYPES)
    builder.set_times(began, duration, 1)
    builder.profile.default_sample_type = builder.text(DELAY_TYPES[-1][0])
    builder.profile.comment.extend(map(builder.text, comments))
    builder.set_main_binary((delay.stack, count) for delay, (count, _) in delays.items())
    for (stack, labels, bucket), values in delays.items():
        sample = builder.profile.sample.add(value=values, location_id=map(builder.location, stack.frames))
        for key, value in (("tracker", tracker), ("comm", stack.comm), *labels):
            if value:
                sample.label.add(key=builder.text(key), str=builder.text(value))
        if stack.pid:
            sample.label.add(key=builder.text("pid"), num=stack.pid)
        sample.label.add(
            key=builder.text("latency"), num=lower_bound(bucket), num_unit=builder.text("nanoseconds")
        )
    return builder.gzipped()


class StackReader:
    """Turn raw stacks into frames. Call `read` while their processes run. Memory is bounded."""

    def __init__(self) -> None:
        self._forget()

    @property
    def maps(self) -> MemoryMaps:
        """Return the memory maps that were read."""
        return self._maps

    def _forget(self) -> None:
        self._maps = MemoryMaps()
        self._read: dict[int, float] = {}
        self._known: dict[RawStack, Stack] = {}

    def read(self, families: Iterable[Sequence[int]]) -> None:
        """Read the memory maps of processes, unless they were just read.

        Each comes with those that it was forked from, if they are known, as for `MemoryMaps.read`.
        """
        now = time.monotonic()
        for pid, *parents in families:
            if now - self._read.get(pid, -_READ_AGAIN_SECONDS) < _READ_AGAIN_SECONDS:
                continue
            if len(self._read) >= _MOST_PROCESSES:
                self._forget()
            self._read[pid] = now
            self._maps.read(pid, *parents)

    def is_lost(self, raw: RawStack) -> bool:
        """Return whether a stack is empty, or its part in the process isn't known."""
        return self._maps.is_lost(raw.pid, raw.kernel, raw.user)

    def stack(self, raw: RawStack) -> Stack:
        """Return a stack with its frames, leaf first."""
        if raw not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[raw] = self._resolved(raw)
        return self._known[raw]

    def _resolved(self, raw: RawStack) -> Stack:
        kernel, user = (memoryview(bytes.fromhex(part)).cast("Q").tolist() for part in (raw.kernel, raw.user))
        frames = self._maps.frames(raw.pid, kernel, user)
        for place in range(min(_MOST_OWN_FRAMES, len(frames)), 0, -1):
            if _OWN_FRAME.fullmatch(frames[place - 1].symbol):
                frames = frames[place:]
                break
        return Stack(raw.comm, raw.pid, 0, frames or frameless(LOST).frames)


class Recorder:
    """A listener that keeps everything, for one profile. Safe to use from several threads."""

    def __init__(self, tracker: str) -> None:
        self._tracker = tracker
        self._lock = threading.Lock()
        self._reader = StackReader()
        self._delays: dict[Delay, list[int]] = {}
        self._began, self._start = time.time_ns(), time.monotonic_ns()
        self.counts, self.histogram = Counts(), Histogram()
        self._followed = ""

    def add_processes(self, families: Iterable[Sequence[int]]) -> None:
        """Read the memory maps of processes, as `Listener` documents."""
        with self._lock:
            self._reader.read(families)

    def add_tick(self, tick: Tick) -> None:
        """Add a tick, as `Listener` documents."""
        with self._lock:
            counters = dict(tick.counters)
            self._reader.read({(pid,) for wait in tick.waits for pid in _pids(wait)})
            # The tracker has counted those that the kernel gave no stack of.
            counters["lost_stacks"] += sum(
                count
                for wait, (count, _) in tick.waits.items()
                if wait.stack.user and self._reader.is_lost(wait.stack)
            )
            for wait, (count, total) in tick.waits.items():
                delay = Delay(self._stack(wait), wait.labels, wait.bucket)
                if delay not in self._delays and len(self._delays) >= _MOST_DELAYS:
                    counters["reported"] -= count
                    counters["left_out"] += count
                    delay = Delay(frameless(DROPPED), (), wait.bucket)
                self._add(delay, count, total)
            for name, buckets in ((BELOW, tick.below), (DROPPED, tick.dropped)):
                for bucket, (count, total) in buckets.items():
                    self._add(Delay(frameless(name), (), bucket), count, total)
            self.counts.add(counters)
            self._followed = tick.followed
            self.histogram.merge(tick.histogram)

    def add_event(self, event: Happening, skipped: int) -> None:
        """Do nothing: ticks have all events."""

    def add_late(self, waiting: Happening) -> None:
        """Do nothing: what is in flight is counted when it ends."""

    def longest(self, most: int) -> list[tuple[Delay, int, int]]:
        """Return the stacks with the largest total delays, with count and total, over all buckets."""
        together: dict[Delay, list[int]] = {}
        with self._lock:
            for delay, counted in self._delays.items():
                if delay.stack.comm:  # frames such as "(dropped)" are of no thread
                    _increase(together.setdefault(delay._replace(bucket=0), [0, 0]), *counted)
        ordered = sorted(together.items(), key=lambda item: item[1][1], reverse=True)
        return [(delay, count, total) for delay, (count, total) in ordered[:most]]

    def stacks(self) -> list[Stack]:
        """Return the stacks of all delays until now."""
        with self._lock:
            return [delay.stack for delay in self._delays]

    def profile(self) -> bytes:
        """Return what was counted until now as a gzipped pprof profile. Raises ToolFailed."""
        with self._lock:
            delays = {delay: (count, total) for delay, (count, total) in self._delays.items()}
            counts, followed = self.counts.as_json(), self._followed
            lasted = time.monotonic_ns() - self._start
        comments = [f"{self._tracker}: {name} {number}" for name, number in counts.items()]
        if followed:
            cut_short = counts["cut_short"] if followed == BY_CALL_FRAMES else None
            comments.append(stacks_comment(followed, cut_short, counts["reported"]))
        return latency_profile(self._tracker, self._began, lasted, delays, comments)

    def _add(self, delay: Delay, count: int, total: int) -> None:
        _increase(self._delays.setdefault(delay, [0, 0]), count, total)

    def _stack(self, wait: Wait) -> Stack:
        stack = self._reader.stack(wait.stack)
        if wait.waker is None:
            return stack
        # Leaf first: the waker's frames are drawn above those of the thread that it woke, upside down.
        waker = self._reader.stack(wait.waker).frames
        return Stack(stack.comm, stack.pid, 0, (*waker[::-1], *frameless(SEPARATOR).frames, *stack.frames))


class StackNamer:
    """Name the functions of stacks for people. What it knows is kept, up to a bound."""

    def __init__(self) -> None:
        self._reader = StackReader()
        self._names: dict[Frame, tuple[str, ...]] = {}
        self._lock = threading.Lock()

    def names_of_raw(self, raws: Sequence[RawStack]) -> list[list[str]]:
        """Return the functions of raw stacks of processes that still run, as `names` does."""
        with self._lock:
            self._reader.read({(raw.pid,) for raw in raws})
            stacks = [self._reader.stack(raw) for raw in raws]
        return self.names(stacks)

    def names(self, stacks: Sequence[Stack]) -> list[list[str]]:
        """Return the functions of each stack, leaf first; an address in place of an unknown one.

        Raises ToolFailed if functions can't be looked up.
        """
        with self._lock:
            if len(self._names) > _MOST_NAMES:
                self._names.clear()
            unknown = [
                replace(stack, frames=frames)
                for stack in stacks
                if (frames := tuple(frame for frame in stack.frames if frame not in self._names))
            ]
            known = function_names(unknown) if unknown else {}
            for stack in unknown:
                for frame in stack.frames:
                    self._names[frame] = known.get(frame) or (_address(frame),)
            return [[name for frame in stack.frames for name in self._names[frame]] for stack in stacks]


def _address(frame: Frame) -> str:
    if frame.mapping is None or not frame.mapping.file:  # code of a JIT compiler has none
        return f"{frame.address:#x}"
    offset = frame.address - frame.mapping.start + frame.mapping.offset
    return f"{frame.mapping.file.rpartition('/')[2]}+{offset:#x}"


def _pids(wait: Wait) -> Iterable[int]:
    return (wait.stack.pid, wait.waker.pid) if wait.waker else (wait.stack.pid,)


def _increase(counted: list[int], count: int, total: int) -> None:
    counted[0] += count
    counted[1] += total
