"""Units of sample types: how many nanoseconds or bytes one is, by the names that profilers give them."""

from __future__ import annotations

from typing import NamedTuple


class Unit(NamedTuple):
    """A unit: `base` is what it measures, `nanoseconds` or `bytes`, and `factor` how many of them it is."""

    base: str
    factor: int


# The names that `go tool pprof` scales (google/pprof, internal/measurement), those of UCUM, which
# OpenTelemetry has, and others that were seen; in lower case and without a plural's s.
_NAMES = (
    ("ns nsec nanosecond", Unit("nanoseconds", 1)),
    ("us μs µs usec microsecond", Unit("nanoseconds", 10**3)),
    ("ms msec millisecond", Unit("nanoseconds", 10**6)),
    ("s sec second", Unit("nanoseconds", 10**9)),
    ("min minute", Unit("nanoseconds", 60 * 10**9)),
    ("h hr hour", Unit("nanoseconds", 3600 * 10**9)),
    ("b by byte", Unit("bytes", 1)),
    ("kb kib kiby kbyte kilobyte", Unit("bytes", 1 << 10)),
    ("mb mib miby mbyte megabyte", Unit("bytes", 1 << 20)),
    ("gb gib giby gbyte gigabyte", Unit("bytes", 1 << 30)),
    ("tb tib tiby tbyte terabyte", Unit("bytes", 1 << 40)),
    ("pb pib piby pbyte petabyte", Unit("bytes", 1 << 50)),
)
_UNITS = {name: unit for names, unit in _NAMES for name in names.split()}


def unit_called(name: str) -> Unit | None:
    """Return the unit with this name; None if it is neither a time nor a size."""
    lower = name.lower()
    return _UNITS.get(lower) or (_UNITS.get(lower.removesuffix("s")) if len(lower) > 2 else None)
