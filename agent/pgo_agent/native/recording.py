"""What was sampled of native programs, whoever sampled it: the input of every profile with addresses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

# What a profile has room for.
_MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Mapping:
    """`size` bytes of a file, from `offset` on, that lay at `start` in memory."""

    file: str
    build_id: str
    start: int
    size: int
    offset: int


@dataclass(frozen=True, slots=True)
class Frame:
    """An address in memory; `mapping` is None and `symbol` empty where nobody knew them."""

    address: int
    mapping: Mapping | None
    symbol: str


@dataclass(frozen=True, slots=True)
class Stack:
    """The frames of a thread, from the leaf on; `comm` is what the kernel calls the thread."""

    comm: str
    pid: int
    thread: int
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """Stacks with the samples and the CPU time (ns) of each.

    `began` is ns since 1970, `duration` and `period`, the CPU time between two samples, are ns.
    """

    began: int
    duration: int
    period: int
    stacks: dict[Stack, tuple[int, int]]

    @classmethod
    def of(cls, began: int, duration: int, period: int, samples: Iterable[tuple[Stack, int, int]]) -> Self:
        """That of samples: their stack, how many they are, and their CPU time (ns), in any order."""
        stacks: dict[Stack, tuple[int, int]] = {}
        for stack, count, cpu in samples:
            counted, taken = stacks.get(stack, (0, 0))
            stacks[stack] = min(counted + count, _MOST), min(taken + cpu, _MOST)
        return cls(began, duration, period, stacks)
