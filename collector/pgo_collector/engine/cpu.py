"""What a CPU profile of Go is: the one kind of profile that pgo-fleet's routes take."""

from __future__ import annotations

from pprof_merge import Header, ValueType

from pgo_collector.errors import NotACPUProfile

CPU = ValueType(b"cpu", b"nanoseconds")
SAMPLES = ValueType(b"samples", b"count")
_LONGEST_LIST = 200


def check_cpu(header: Header) -> None:
    """Raises NotACPUProfile unless the values are samples and CPU time, in any order, taken by CPU time."""
    if header.period_type != CPU:
        raise NotACPUProfile(
            f"not a CPU profile: the period is in {_cut(str(header.period_type))}, not in {CPU}"
        )
    if sorted(header.sample_types) != sorted((SAMPLES, CPU)):
        types = ", ".join(map(str, header.sample_types[:10])) or "nothing"
        raise NotACPUProfile(f"not a CPU profile: it measures {_cut(types)}, not {SAMPLES} and {CPU}")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_LIST else text[:_LONGEST_LIST] + "…"
