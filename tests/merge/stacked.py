"""Profiles built from folded stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pprof_proto.profile_pb2 import Profile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PERIOD = 10_000_000


def stacked(stacks: Mapping[str, int], *, time_nanos: int = 1) -> bytes:
    """Return a CPU profile, bare protobuf, with the count of each stack, such as `main.main;main.run`.

    Each count stands for 10 ms.
    """
    profile = Profile(time_nanos=time_nanos, duration_nanos=10**9, period=_PERIOD, string_table=[b""])

    def string(text: str) -> int:
        profile.string_table.append(text.encode())
        return len(profile.string_table) - 1

    for type_, unit in (("samples", "count"), ("cpu", "nanoseconds")):
        profile.sample_type.add(type=string(type_), unit=string(unit))
    profile.period_type.type, profile.period_type.unit = string("cpu"), string("nanoseconds")
    profile.mapping.add(id=1, memory_start=0x400000, memory_limit=0x500000, filename=string("/bin/service"))
    locations: dict[str, int] = {}
    for stack, count in stacks.items():
        names = stack.split(";") if stack else []
        for name in names:
            if name not in locations:
                number = locations[name] = len(locations) + 1
                profile.function.add(id=number, name=string(name), system_name=string(name), start_line=1)
                location = profile.location.add(id=number, mapping_id=1, address=0x401000 + number)
                location.line.add(function_id=number, line=2)
        profile.sample.add(
            location_id=[locations[name] for name in reversed(names)], value=[count, count * _PERIOD]
        )
    return profile.SerializeToString()


HEAP = (
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
)


def heap_of(stacks: Mapping[str, Sequence[int]], *, time_nanos: int = 1) -> bytes:
    """Return a heap profile as Go writes it, bare protobuf, with the four values of each stack: see HEAP."""
    profile = Profile.FromString(stacked(dict.fromkeys(stacks, 1), time_nanos=time_nanos))
    profile.duration_nanos = 0  # Go gives one only to what it has made a difference of
    del profile.sample_type[:]

    def string(text: str) -> int:
        profile.string_table.append(text.encode())
        return len(profile.string_table) - 1

    for type_, unit in HEAP:
        profile.sample_type.add(type=string(type_), unit=string(unit))
    profile.period_type.type, profile.period_type.unit = string("space"), string("bytes")
    for sample, values in zip(profile.sample, stacks.values(), strict=True):
        sample.value[:] = values
    return profile.SerializeToString()
