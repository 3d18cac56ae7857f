"""Families of settings: some follow a master, so that raising one setting raises all that it needs.

A follower has a name of its own, for the operator who needs it alone. Unless it is set, its value is computed
from its master's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from pgo_collector.resources import memory_bytes
from pgo_collector.settings.fields import Above, field

# The memory of the server and two workers with nothing stored, once all that they import was used, in MiB.
_IDLE_MEGABYTES = 160


class Follows:
    """The default of a follower: it makes the value from those of the fields above."""

    def __init__(self, master: str, rule: Callable[[Above], Any], default: str = "") -> None:
        self.master = master
        self.default = default
        self._rule = rule

    def __call__(self, above: Above) -> Any:
        """Return the value."""
        return self._rule(above)


def follows(
    master: str, rule: Callable[[Above], Any], meaning: str, *, default: str = "", **bounds: Any
) -> Any:
    """Return the field of a setting that follows a master by a rule; `meaning` is for the master's help."""
    return field(meaning, default_factory=Follows(master, rule, default), **bounds)


class Family(NamedTuple):
    """A master with its default. Its followers grow in proportion once it is above that."""

    master: str
    default: float

    def follower(self, default: float, meaning: str, *, le: float, **bounds: float) -> Any:
        """Return the field of a follower, which has its default up to the master's, and is `le` at most."""

        def grown(above: Above) -> float:
            value: float = above[self.master]
            if value <= self.default:
                return default
            if isinstance(default, int) and isinstance(value, int):
                return min(default * value // int(self.default), int(le))
            return min(default * value / self.default, le)

        return follows(self.master, grown, meaning, default=f"{default:.15g}", le=le, **bounds)


def default_workers(_: Above) -> int:
    """Return the number of cores, at least 2, so that a merge doesn't hold up submits."""
    return max(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def rows_megabytes(above: Above) -> int:
    """Return a quarter of the memory, in MiB; at most 1024 of a machine's."""
    memory: int | None = above["memory_megabytes"]
    return max(1, min(1024, _machine_megabytes() // 4) if memory is None else memory // 4)


def worker_megabytes(above: Above) -> int:
    """Return a worker's share of the memory for tasks, in MiB: at least 64, and at most 4096 of a machine's.

    The workers share four fifths of the memory, less what idle processes and rows take.
    """
    memory: int | None = above["memory_megabytes"]
    total = (_machine_megabytes() if memory is None else memory) * 4 // 5
    share: int = max((total - _IDLE_MEGABYTES - above["rows_megabytes"]) // above["workers"], 64)
    return min(share, 4096) if memory is None else share


def max_output_bytes(above: Above) -> int:
    """Return a third of a worker's memory for tasks, in bytes; at most 256 MiB of a machine's."""
    third: int = (above["worker_megabytes"] << 20) // 3
    return min(256 << 20, third) if above["memory_megabytes"] is None else third


def pages_megabytes(above: Above) -> float:
    """Return 16, or a 256th of the memory that is set, in MiB."""
    memory: int | None = above["memory_megabytes"]
    return 16 if memory is None else memory / 256


def body_memory_bytes(above: Above) -> int:
    """Return 64 MiB, or a 64th of the memory that is set, in bytes."""
    memory: int | None = above["memory_megabytes"]
    return 64 << 20 if memory is None else (memory << 20) // 64


def _machine_megabytes() -> int:
    return memory_bytes() >> 20
