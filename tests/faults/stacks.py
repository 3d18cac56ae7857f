"""Profiles of one stack each, so that a merge shows how often it counted each profile."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Final

from pprof_proto.profile_pb2 import Profile

SECOND: Final = 1_000_000_000
DAY: Final = 86_400 * SECOND
EPOCH: Final = 1_700_000_000 * SECOND


def profile_of(stack: str, *, time_nanos: int = EPOCH, type_: str = "cpu", swapped: bool = False) -> bytes:
    """Return the gzip of a profile with one sample, of the function `stack`, with the values 1 and 10 ms."""
    profile = Profile(time_nanos=time_nanos, duration_nanos=SECOND, period=10_000_000)
    profile.string_table.append(b"")

    def string(text: str) -> int:
        profile.string_table.append(text.encode())
        return len(profile.string_table) - 1

    types = [("samples", "count", 1), (type_, "nanoseconds", 10_000_000)]
    for name, unit, _ in reversed(types) if swapped else types:
        profile.sample_type.add(type=string(name), unit=string(unit))
    profile.period_type.type, profile.period_type.unit = string(type_), string("nanoseconds")
    profile.mapping.add(id=1, memory_start=0x400000, memory_limit=0x500000, filename=string("/bin/service"))
    profile.function.add(id=1, name=string(stack), system_name=string(stack), start_line=1)
    profile.location.add(id=1, mapping_id=1, address=0x401000).line.add(function_id=1, line=2)
    profile.sample.add(
        location_id=[1], value=[value for *_, value in (reversed(types) if swapped else types)]
    )
    return gzip.compress(profile.SerializeToString(), mtime=0)


def large_profile(stack: str, seed: int = 0, time_nanos: int = EPOCH) -> bytes:
    """Return a bare profile with 6 MB that can't be compressed: more than a connection buffers."""
    profile = Profile.FromString(gzip.decompress(profile_of(stack, time_nanos=time_nanos)))
    random = Random(seed)  # noqa: S311 - nothing secret
    for _ in range(200):
        profile.comment.append(len(profile.string_table))
        profile.string_table.append(random.randbytes(30_000))
    return profile.SerializeToString()


def tally(merged: bytes) -> Counter[str]:
    """Return how often each stack's profile is in a merge; the two values of a sample must agree."""
    counts: Counter[str] = Counter()
    for stack, times, other in _samples(merged):
        assert other == times * 10_000_000
        counts[stack] += times
    return counts


def weighed_tally(merged: bytes) -> dict[str, float]:
    """Return how much each stack's profile counts in a weighted merge, whose counts are in thousandths."""
    counts: dict[str, float] = {}
    for stack, thousandths, other in _samples(merged):
        counts[stack] = counts.get(stack, 0) + thousandths / 1000
        assert abs(other / 10_000_000 - thousandths / 1000) <= 0.001
    return counts


def _samples(merged: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield the stack of each sample and its values, the smaller one first."""
    profile = Profile.FromString(gzip.decompress(merged))
    names = {function.id: profile.string_table[function.name].decode() for function in profile.function}
    stacks = {location.id: names[location.line[0].function_id] for location in profile.location}
    for sample in profile.sample:
        smaller, larger = sorted(sample.value)
        yield stacks[sample.location_id[0]], smaller, larger
