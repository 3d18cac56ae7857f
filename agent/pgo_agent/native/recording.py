"""Hold samples of native programs: what every backend returns, and what `native.pprof` turns into pprof."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

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
    """Stacks, each with its number of samples and its CPU time (ns).

    `began` is ns since 1970. `duration` is in ns, and `period` is the CPU time between two samples (ns).
    """

    began: int
    duration: int
    period: int
    stacks: dict[Stack, tuple[int, int]]

    @classmethod
    def from_samples(
        cls, began: int, duration: int, period: int, samples: Iterable[tuple[Stack, int, int]]
    ) -> Self:
        """Return a recording of (stack, number of samples, CPU time in ns) tuples, in any order."""
        stacks: dict[Stack, tuple[int, int]] = {}
        for stack, count, cpu in samples:
            total_count, total_cpu = stacks.get(stack, (0, 0))
            stacks[stack] = min(total_count + count, _MAX_VALUE), min(total_cpu + cpu, _MAX_VALUE)
        return cls(began, duration, period, stacks)
