"""Hold samples of native programs: what every backend returns, and what `native.pprof` turns into pprof."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from pgo_agent.profile_builder import CPU_TYPES

# How callers are found: by what the compiler has noted of each address, or by a register that few programs
# use for that.
BY_CALL_FRAMES = "by call frame information"
BY_FRAME_POINTERS = "by frame pointers"
# Values in pprof are int64; this is the largest.
_MAX_VALUE = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Mapping:
    """A part of a file in memory: `size` bytes from `offset` of the file, at address `start`."""

    file: str
    build_id: str
    start: int
    size: int
    offset: int


@dataclass(frozen=True, slots=True)
class Frame:
    """An address in memory. `mapping` is None and `symbol` is "" if they aren't known."""

    address: int
    mapping: Mapping | None
    symbol: str


@dataclass(frozen=True, slots=True)
class Stack:
    """The frames of a thread, leaf first. `comm` is the thread's name in the kernel."""

    comm: str
    pid: int
    thread: int
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """Stacks, each with its number of samples and their amount: CPU time in ns, or a number of events.

    `began` is ns since 1970. `duration` is in ns, and `period` is the amount between two samples. `types` are
    the sample types of the profile, each a name and a unit: of the number and the amount, or of that alone.
    `lost_stacks` of the samples have no stack, or are of a process whose memory map couldn't be read.
    `followed` says how the callers were found, "" if that isn't known, and `cut_short` how many samples lack
    the outermost ones, up to `main` or the start of the thread. `python` says which samples
    have frames of Python.
    """

    began: int
    duration: int
    period: int
    stacks: dict[Stack, tuple[int, int]]
    types: Sequence[tuple[str, str]] = CPU_TYPES
    lost_stacks: int = 0
    followed: str = ""
    cut_short: int | None = None
    python: str = ""

    @classmethod
    def from_samples(
        cls,
        began: int,
        duration: int,
        period: int,
        samples: Iterable[tuple[Stack, int, int]],
        types: Sequence[tuple[str, str]] = CPU_TYPES,
    ) -> Self:
        """Return a recording of (stack, number of samples, amount) tuples, in any order."""
        stacks: dict[Stack, tuple[int, int]] = {}
        for stack, count, amount in samples:
            total_count, total = stacks.get(stack, (0, 0))
            stacks[stack] = min(total_count + count, _MAX_VALUE), min(total + amount, _MAX_VALUE)
        return cls(began, duration, period, stacks, types)

    def comments(self) -> Iterator[str]:
        """Yield what the profile says of its stacks."""
        if self.followed:
            yield stacks_comment(
                self.followed, self.cut_short, sum(count for count, _ in self.stacks.values())
            )
        if self.python:
            yield self.python


def stacks_comment(followed: str, cut_short: int | None, count: int) -> str:
    """Return how the callers of `count` samples or events were found, and how many lack the outermost."""
    if cut_short is None:
        return f"stacks: {followed}"
    share = 100 * cut_short / max(count, 1)
    return f"stacks: {followed}; {cut_short} of {count} ({share:.1f} %) cut short"
