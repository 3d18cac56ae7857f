"""Read what the child process of a tracker prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from pgo_agent.latency.histogram import Histogram
from pgo_agent.latency.trackers import Labels, Tracker


class RawStack(NamedTuple):
    """The addresses of a thread's stack as hex of native 64-bit numbers, leaf first."""

    pid: int
    comm: str
    kernel: str
    user: str


# Returns a stack in a process, as hex, and whether it is known to be all of it, from the id of its copy and
# what the kernel followed of it.
Whole = Callable[[int, str], tuple[str, bool]]


class Wait(NamedTuple):
    """Key of reported events that are added up; `waker` is the stack of who ended them, if known."""

    stack: RawStack
    labels: Labels
    bucket: int
    waker: RawStack | None


class Happening(NamedTuple):
    """One event, or what is in flight: `delay` is in ns, `time` is when it was seen (ns since 1970)."""

    stack: RawStack
    thread: int
    labels: Labels
    delay: int
    time: int

    @classmethod
    def parse(cls, tracker: Tracker, printed: dict[str, Any], whole: Whole) -> Self:
        """Return what a line of the child process describes."""
        user, _ = whole(printed["copy"], printed["user"])
        stack = RawStack(printed["pid"], printed["comm"], printed["kernel"], user)
        labels = tracker.labels(printed["number"], printed["name"], printed["operation"])
        return cls(stack, printed["thread"], labels, printed["delay"], printed["time"])


@dataclass(frozen=True, slots=True)
class Tick:
    """Counts of a tracker in about a second.

    `waits` have the number and the total delay (ns) of events with the same stack, labels and bucket. `below`
    and `dropped` have the same by bucket, of events below the threshold and of those whose stack was dropped.
    `counters` are described in `Counts`; `followed` says how the callers in stacks were found.
    """

    waits: dict[Wait, tuple[int, int]]
    below: dict[int, tuple[int, int]]
    dropped: dict[int, tuple[int, int]]
    counters: dict[str, int]
    histogram: Histogram
    followed: str

    @classmethod
    def parse(cls, tracker: Tracker, printed: dict[str, Any], whole: Whole, followed: str) -> Self:
        """Return the tick in a line of the child process."""
        waits: dict[Wait, tuple[int, int]] = {}
        cut_short = 0
        for of, number, name, operation, *stack, waker, bucket, count, total in printed["stacks"]:
            waiting, is_whole = _raw_stack(of, stack, whole)
            waking = _raw_stack(waker[0], waker[1:], whole)[0] if waker else None
            wait = Wait(waiting, tracker.labels(number, name, operation), bucket, waking)
            cut_short += count * (not is_whole)
            before = waits.get(wait, (0, 0))
            waits[wait] = before[0] + count, before[1] + total
        below, dropped = (
            {int(bucket): (count, total) for bucket, (count, total) in printed[name].items()}
            for name in ("below", "dropped")
        )
        histogram = Histogram(min=printed["min"], max=printed["max"])
        by_bucket: Counter[int] = Counter()
        for bucket, (count, total) in [
            *((wait.bucket, counted) for wait, counted in waits.items()),
            *below.items(),
            *dropped.items(),
        ]:
            by_bucket[bucket] += count
            histogram.total += total
        histogram.counts = dict(by_bucket)
        counters = printed["counters"] | {"cut_short": cut_short}
        return cls(waits, below, dropped, counters, histogram, followed)


def _raw_stack(of: Sequence[Any], stack: Sequence[Any], whole: Whole) -> tuple[RawStack, bool]:
    """Return a stack of a process and thread with its callers, and whether it is known to have all."""
    (pid, comm), (kernel, user, copy) = of, stack
    user, is_whole = whole(copy, user)
    return RawStack(pid, comm, kernel, user), is_whole


class Counts:
    """How many events a tracker has seen, and what became of them: seen = reported + below + dropped.

    `dropped` is the sum of `table_full` (too much in flight; the latency isn't known), `missed` (the kernel
    didn't tell of the end; as before), `ring_full` (events came faster than they were read) and `left_out`
    (more different stacks than are kept). `lost_stacks` of the reported have no stack, and of `cut_short` it
    isn't known whether it reaches the start of the thread. `abandoned` packets were read by no program, and
    aren't in `seen`; nor is `unseen`: the times that the kernel didn't run the tracker's program, since
    another ran on the same CPU.
    """

    NAMES = (
        "seen",
        "below",
        "reported",
        "table_full",
        "missed",
        "ring_full",
        "left_out",
        "lost_stacks",
        "cut_short",
        "abandoned",
        "unseen",
    )
    DROPPED = ("table_full", "missed", "ring_full", "left_out")

    def __init__(self) -> None:
        self._counts = dict.fromkeys(self.NAMES, 0)

    def add(self, counters: dict[str, int]) -> None:
        """Add the counters of a tick."""
        for name in self.NAMES:
            self._counts[name] += counters[name]

    def as_json(self) -> dict[str, int]:
        """Return all counts by name."""
        counts = self._counts
        return counts | {"dropped": sum(counts[name] for name in self.DROPPED)}
