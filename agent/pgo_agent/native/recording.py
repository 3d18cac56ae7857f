"""Hold samples of native programs: what every backend returns, and what `native.pprof` turns into pprof."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from pgo_agent.profile_builder import CPU_TYPES

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
    """

    began: int
    duration: int
    period: int
    stacks: dict[Stack, tuple[int, int]]
    types: Sequence[tuple[str, str]] = CPU_TYPES
    lost_stacks: int = 0

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
