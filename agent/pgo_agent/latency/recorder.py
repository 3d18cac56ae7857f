"""Keep what a tracker counts for a time, and make a profile of it, or name the functions of a stack."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence

from pgo_agent.latency.histogram import Histogram
from pgo_agent.latency.profile import BELOW, DROPPED, LOST, SEPARATOR, Delay, frameless, latency_profile
from pgo_agent.latency.tick import Counts, Happening, RawStack, Tick, Wait
from pgo_agent.native import Frame, MemoryMaps, Stack, function_names

_MOST_WAITS = 20_000
_MOST_NAMES = 50_000
_MOST_PROCESSES = 1000
# The interrupt in which a thread's stack is taken when it comes back to a CPU; the thread called none of it.
_INTERRUPT = "asm_sysvec_irq_work"
_DEEPEST_INTERRUPT = 8


class StackReader:
    """Turn raw stacks into frames. Call `read` while their processes run."""

    def __init__(self) -> None:
        self._maps = MemoryMaps()
        self._read: set[int] = set()

    def read(self, pids: Iterable[int]) -> None:
        """Read the memory maps of processes that weren't read yet."""
        for pid in pids:
            if pid and pid not in self._read:
                self._read.add(pid)
                self._maps.read(pid)

    def read_again(self) -> None:
        """Read all maps once more: the processes may have loaded libraries since."""
        self._maps.read_again()

    def stack(self, raw: RawStack) -> Stack:
        """Return a stack with its frames, leaf first."""
        kernel, user = (memoryview(bytes.fromhex(part)).cast("Q").tolist() for part in (raw.kernel, raw.user))
        frames = self._maps.frames(raw.pid, kernel, user)
        for place, frame in enumerate(frames[:_DEEPEST_INTERRUPT]):
            if frame.symbol == _INTERRUPT:
                frames = frames[place + 1 :]
                break
        return Stack(raw.comm, raw.pid, 0, frames or frameless(LOST).frames)


class Recorder:
    """A listener that keeps everything, for one profile."""

    def __init__(self, tracker: str) -> None:
        self._tracker = tracker
        self._lock = threading.Lock()
        self._reader = StackReader()
        self._waits: dict[Wait, list[int]] = {}
        self._frameless: dict[tuple[str, int], list[int]] = {}
        self._began, self._start = time.time_ns(), time.monotonic_ns()
        self.counts, self.histogram = Counts(), Histogram()

    def add_processes(self, pids: Iterable[int]) -> None:
        """Read the memory maps of processes, as `Listener` documents."""
        with self._lock:
            self._reader.read(pids)

    def add_tick(self, tick: Tick) -> None:
        """Add a tick, as `Listener` documents."""
        with self._lock:
            counters = dict(tick.counters)
            self._reader.read(pid for wait in tick.waits for pid in _pids(wait))
            for wait, (count, total) in tick.waits.items():
                if wait in self._waits or len(self._waits) < _MOST_WAITS:
                    _add(self._waits.setdefault(wait, [0, 0]), count, total)
                else:
                    counters["reported"] -= count
                    counters["left_out"] += count
                    _add(self._frameless.setdefault((DROPPED, wait.bucket), [0, 0]), count, total)
            for name, buckets in ((BELOW, tick.below), (DROPPED, tick.dropped)):
                for bucket, (count, total) in buckets.items():
                    _add(self._frameless.setdefault((name, bucket), [0, 0]), count, total)
            self.counts.add(counters)
            self.histogram.merge(tick.histogram)

    def add_event(self, event: Happening, skipped: int) -> None:
        """Do nothing: ticks have all events."""

    def add_late(self, waiting: Happening) -> None:
        """Do nothing: what is in flight is counted when it ends."""

    def longest(self, most: int) -> list[tuple[Wait, int, int]]:
        """Return the waits with the largest total delays, each with its count and total, over all buckets."""
        together: dict[Wait, list[int]] = {}
        with self._lock:
            for wait, (count, total) in self._waits.items():
                _add(together.setdefault(wait._replace(bucket=0), [0, 0]), count, total)
        ordered = sorted(together.items(), key=lambda item: item[1][1], reverse=True)
        return [(wait, count, total) for wait, (count, total) in ordered[:most]]

    def profile(self) -> bytes:
        """Return what was counted until now as a gzipped pprof profile. Raises ToolFailed."""
        with self._lock:
            self._reader.read_again()
            delays: dict[Delay, tuple[int, int]] = {}
            for wait, (count, total) in self._waits.items():
                delay = Delay(self._stack(wait), wait.labels, wait.bucket)
                before = delays.get(delay, (0, 0))
                delays[delay] = before[0] + count, before[1] + total
            for (name, bucket), (count, total) in self._frameless.items():
                delays[Delay(frameless(name), (), bucket)] = count, total
            counts = self.counts.as_json()
            lasted = time.monotonic_ns() - self._start
        comments = [f"{self._tracker}: {name} {number}" for name, number in counts.items()]
        return latency_profile(self._tracker, self._began, lasted, delays, comments)

    def _stack(self, wait: Wait) -> Stack:
        stack = self._reader.stack(wait.stack)
        if wait.waker is None:
            return stack
        # Leaf first: the waker's frames are drawn above those of the thread that it woke, its leaf outermost.
        waker = self._reader.stack(wait.waker).frames
        return Stack(stack.comm, stack.pid, 0, (*waker[::-1], *frameless(SEPARATOR).frames, *stack.frames))


class StackNamer:
    """Name the functions of stacks for people. What it knows is kept, up to a bound."""

    def __init__(self) -> None:
        self._reader = StackReader()
        self._pids: set[int] = set()
        self._names: dict[Frame, tuple[str, ...]] = {}

    def names(self, raws: Sequence[RawStack]) -> list[list[str]]:
        """Return the functions of each stack, leaf first; an address in place of an unknown one."""
        self._pids.update(raw.pid for raw in raws)
        if len(self._pids) > _MOST_PROCESSES or len(self._names) > _MOST_NAMES:
            self._reader, self._pids, self._names = StackReader(), set(), {}
        self._reader.read(raw.pid for raw in raws)
        stacks = [self._reader.stack(raw) for raw in raws]
        unknown = tuple({frame for stack in stacks for frame in stack.frames} - self._names.keys())
        if unknown:
            known = function_names([Stack(stack.comm, stack.pid, 0, stack.frames) for stack in stacks])
            for frame in unknown:
                self._names[frame] = known.get(frame) or (_address(frame),)
        return [[name for frame in stack.frames for name in self._names[frame]] for stack in stacks]


def _address(frame: Frame) -> str:
    if frame.mapping is None:
        return f"{frame.address:#x}"
    offset = frame.address - frame.mapping.start + frame.mapping.offset
    return f"{frame.mapping.file.rpartition('/')[2]}+{offset:#x}"


def _pids(wait: Wait) -> Iterable[int]:
    return (wait.stack.pid, wait.waker.pid) if wait.waker else (wait.stack.pid,)


def _add(counted: list[int], count: int, total: int) -> None:
    counted[0] += count
    counted[1] += total
