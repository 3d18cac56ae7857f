"""The types of profiles, and the check that a profile has the sample types of its type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from pprof_merge import Header, ValueType

from pgo_collector.errors import NotACPUProfile

CPU_TIME = ValueType(b"cpu", b"nanoseconds")
SAMPLE_COUNT = ValueType(b"samples", b"count")
_LONGEST_LIST = 200


def check_cpu(header: Header) -> None:
    """Raise NotACPUProfile unless the period is CPU time and the sample types are samples and CPU time.

    The two sample types may come in any order.
    """
    if header.period_type != CPU_TIME:
        raise NotACPUProfile(
            f"not a CPU profile: the period is in {_cut(str(header.period_type))}, not in {CPU_TIME}"
        )
    if sorted(header.sample_types) != sorted((SAMPLE_COUNT, CPU_TIME)):
        types = ", ".join(map(str, header.sample_types[:10])) or "nothing"
        raise NotACPUProfile(
            f"not a CPU profile: it measures {_cut(types)}, not {SAMPLE_COUNT} and {CPU_TIME}"
        )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_LIST else text[:_LONGEST_LIST] + "…"


CPU = "cpu"
# The types of profiles that clients of Pyroscope push. None is merged with a type above: compilers can't use
# PROCESS_CPU, whose functions have no start lines, and the deltas count what came since the one before.
PROCESS_CPU = "process_cpu"
# Why profiles of PROCESS_CPU aren't of the type CPU.
KEPT_APART = (
    "Go's compiler can't use them: their functions have no start lines, or they don't measure what Go's CPU"
    " profiles do"
)
# The label of CPU profiles by eBPF whose functions got their start lines from elsewhere, and its values: from
# Go profiles of the same build alone, or some from symbols that were uploaded.
START_LINES, BY_PROFILES, BY_SYMBOLS = "start_lines", "joined", "symbols"
WALL = "wall"
MEMORY_DELTA = "memory"
BLOCK_DELTA = "block_delta"
MUTEX_DELTA = "mutex_delta"
OTHER = "other"


def _accept_any(_: Header) -> None:
    """Accept any header: profilers differ in what they measure for this type."""


# The types of the agent's latency trackers, and what the pages call them. The tracker `block`, of disks,
# sends `blockio`: `block` is Go's block profile, which has the same sample types and measures something else.
# tests/docs/test_trackers.py holds these to the agent's TRACKERS.
LATENCY_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "offcpu": "waits off the CPU",
        "wakeup": "waits for a CPU after a wake-up",
        "syscall": "system calls",
        "blockio": "requests to disks",
        "irq": "interrupts",
        "softirq": "soft interrupts",
        "network": "the network",
    }
)

# The check of each type, by name; it raises NotACPUProfile for a profile that isn't of the type.
TYPES: Mapping[str, Callable[[Header], None]] = MappingProxyType(
    {
        CPU: check_cpu,
        **dict.fromkeys(
            (
                "heap", "allocs", "block", "mutex", "goroutine", "threadcreate", *LATENCY_TYPES,
                PROCESS_CPU, WALL, MEMORY_DELTA, BLOCK_DELTA, MUTEX_DELTA, OTHER,
            ),
            _accept_any,
        ),
    }
)  # fmt: skip
