"""Generated profiles of native programs: leaves with addresses, lines, inlined calls and counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pprof_merge
from pprof_proto.profile_pb2 import Profile


@dataclass(frozen=True)
class Frame:
    """A line of a function; `name` is its linkage name."""

    name: bytes
    line: int
    start_line: int = 10


@dataclass(frozen=True)
class Leaf:
    """`count` samples at an address, with its frames, the innermost first, and its callers."""

    address: int
    count: int
    frames: tuple[Frame, ...]
    build_id: bytes = b"5eed"
    callers: tuple[Frame, ...] = ()


LARGEST = (1 << 63) - 1
CPU = ((b"samples", b"count"), (b"cpu", b"nanoseconds"))


def native(
    leaves: Sequence[Leaf], types: tuple[tuple[bytes, bytes], ...] = CPU, *, demangled: bool = False
) -> pprof_merge.Profile:
    """Return a profile with a sample for each leaf; CPU time is 10 ms for each count.

    With `demangled`, functions have a name for people and the linkage name; otherwise the linkage name only.
    """
    profile = Profile(string_table=[b""])

    def text(string: bytes) -> int:
        if string not in profile.string_table:
            profile.string_table.append(string)
        return list(profile.string_table).index(string)

    def location(address: int, mapping: int, frames: Sequence[Frame]) -> int:
        added = profile.location.add(id=len(profile.location) + 1, address=address, mapping_id=mapping)
        for frame in frames:
            function = profile.function.add(id=len(profile.function) + 1, start_line=frame.start_line)
            function.name = text(b"for people" if demangled else frame.name)
            function.system_name = text(frame.name) if demangled else 0
            added.line.add(function_id=function.id, line=frame.line)
        return int(added.id)

    for name, unit in types:
        profile.sample_type.add(type=text(name), unit=text(unit))
    build_ids = sorted({leaf.build_id for leaf in leaves})
    for build_id in build_ids:
        start = 0x400000 * (len(profile.mapping) + 1)
        profile.mapping.add(id=len(profile.mapping) + 1, build_id=text(build_id), memory_start=start)
        profile.mapping[-1].memory_limit = start + 0x400000
    for leaf in leaves:
        mapping = build_ids.index(leaf.build_id) + 1
        base = 0x400000 * mapping if leaf.address else 0
        sample = profile.sample.add()
        sample.location_id.append(location(base + leaf.address, mapping, leaf.frames))
        sample.location_id.extend(location(base + 1, mapping, [caller]) for caller in leaf.callers)
        values = {b"samples": leaf.count, b"cpu": min(10_000_000 * leaf.count, LARGEST)}
        sample.value.extend(values.get(name, 1) for name, _ in types)
    return pprof_merge.decode(profile.SerializeToString())
