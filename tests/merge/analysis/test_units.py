"""Units are known by the names that `go tool pprof` scales, and by those of other profilers."""

from __future__ import annotations

import pytest
from pprof_merge.analysis import Unit, unit_called


@pytest.mark.parametrize(
    ("names", "unit"),
    [
        ("ns nanosecond nanoseconds NANOSECONDS", Unit("nanoseconds", 1)),
        ("us μs µs usec usecs microseconds", Unit("nanoseconds", 1000)),
        ("ms msec milliseconds", Unit("nanoseconds", 10**6)),
        ("s sec secs second seconds", Unit("nanoseconds", 10**9)),
        ("min minutes", Unit("nanoseconds", 60 * 10**9)),
        ("hr hrs hour hours", Unit("nanoseconds", 3600 * 10**9)),
        ("B By byte bytes", Unit("bytes", 1)),
        ("kB KiBy kilobytes", Unit("bytes", 1024)),
        ("MB MiB megabytes", Unit("bytes", 1 << 20)),
        ("PB petabyte", Unit("bytes", 1 << 50)),
    ],
)
def test_a_unit_is_known_by_all_its_names(names: str, unit: Unit) -> None:
    assert {unit_called(name) for name in names.split()} == {unit}


@pytest.mark.parametrize("name", ["", "count", "samples", "objects", "bs", "1", "s/op", "cycles"])
def test_others_are_plain_numbers(name: str) -> None:
    assert unit_called(name) is None
