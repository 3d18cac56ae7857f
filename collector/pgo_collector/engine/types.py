"""The types of profiles, and what is asked of a profile to be of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from pprof_merge import Header

from pgo_collector.engine.cpu import check_cpu

CPU = "cpu"


def _anything(_: Header) -> None:
    """What a profile of another type measures differs from profiler to profiler."""


# By name: raises NotACPUProfile for a profile that isn't of that type.
TYPES: Mapping[str, Callable[[Header], None]] = MappingProxyType(
    {
        CPU: check_cpu,
        **dict.fromkeys(
            (
                "heap", "allocs", "block", "mutex", "goroutine", "threadcreate",
                "offcpu", "wakeup", "syscall", "blockio", "irq", "other",
            ),
            _anything,
        ),
    }
)  # fmt: skip
