"""The types of profiles, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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
# What a CPU recorded of the branches that it took: `pgo-agent convert --branches`. Only LLVM can use it.
BRANCHES = "branches"
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

# The types of pushed profiles by their names: of cumulative ones, and of deltas. `process_cpu` is CPU for a
# profile that Go's compiler can use, see `push.naming`; what isn't here is OTHER.
TYPES_BY_NAME: Mapping[str, str] = MappingProxyType(
    {
        PROCESS_CPU: PROCESS_CPU,
        "wall": WALL,
        "memory": "heap",
        "block": "block",
        "mutex": "mutex",
        "goroutine": "goroutine",
        "goroutines": "goroutine",
    }
)
DELTAS_BY_NAME: Mapping[str, str] = MappingProxyType(
    {**TYPES_BY_NAME, "memory": MEMORY_DELTA, "block": BLOCK_DELTA, "mutex": MUTEX_DELTA}
)

# The types of Go's own profiles, and of those that may be: what they count, they count from the start of the
# program on, where they don't say a duration. See `engine.view_inputs`.
COUNTED_SINCE_START = frozenset({"heap", "allocs", "block", "mutex", "goroutine", "threadcreate", OTHER})
# Those that are never rolled up, since their profiles have states, of which views need each snapshot; and
# those that only are with a duration, which makes them amounts.
NOT_ROLLED_UP = frozenset({"heap", "goroutine", "threadcreate", MEMORY_DELTA})
ROLLED_UP_WITH_DURATION = COUNTED_SINCE_START - NOT_ROLLED_UP

# All types. Profilers differ in what they measure, so only those of Go's types and BRANCHES are checked: see
# `engine.validation`.
TYPES = (
    CPU, "heap", "allocs", "block", "mutex", "goroutine", "threadcreate", *LATENCY_TYPES,
    PROCESS_CPU, WALL, MEMORY_DELTA, BLOCK_DELTA, MUTEX_DELTA, BRANCHES, OTHER,
)  # fmt: skip
