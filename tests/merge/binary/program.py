"""A small program in C, and profiles with chosen counts at its addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pprof_proto.profile_pb2 import Profile

if TYPE_CHECKING:
    from pprof_merge.binary.elf import Binary

SOURCE = """
int odd, even;
__attribute__((noinline)) int work(int n, int mode) {
    for (int i = 0; i < n; i++) {
        if (mode == 7)
            odd += i * 3;
        else
            even -= i;
    }
    switch (mode) {
    case 0: return odd;
    case 1: return even * 7;
    case 2: return odd ^ even;
    case 3: return odd + 5 * even;
    case 4: return odd % 17;
    }
    return 0;
}
int main(int argc, char **argv) { return work(argc, argc); }
"""
FLAGS = ("-O1", "-g", "-fdebug-info-for-profiling", "-Wl,--build-id=sha1")


def sampled(binary: Binary, addresses: dict[int, int], build_id: str | None = None) -> bytes:
    """Return a CPU profile with these counts of samples at addresses, of the program loaded elsewhere."""
    profile = Profile(
        string_table=[b"", b"samples", b"count", (binary.build_id if build_id is None else build_id).encode()]
    )
    profile.sample_type.add(type=1, unit=2)
    # The first page of code, at the place in memory that it had: the file's offset isn't the address.
    moved = 0x555500000000
    (offset, address, size) = next(
        each for each in binary.segments if each[1] <= min(addresses) < each[1] + each[2]
    )
    profile.mapping.add(id=1, memory_start=moved, memory_limit=moved + size, file_offset=offset, build_id=3)
    for number, (each, count) in enumerate(addresses.items(), 1):
        profile.location.add(id=number, mapping_id=1, address=moved + each - address)
        profile.sample.add(location_id=[number], value=[count])
    return profile.SerializeToString()


def recorded(
    binary: Binary,
    ranges: dict[tuple[int, int], int],
    branches: dict[tuple[int, int], int] | None = None,
    moved: int = 0x555500000000,
) -> bytes:
    """Return a profile of branch records: ranges from one address to another, and branches.

    Address 0 is one outside the program.
    """
    profile = Profile(string_table=[b"", b"ranges", b"count", b"branches", binary.build_id.encode()])
    profile.sample_type.add(type=1, unit=2)
    profile.sample_type.add(type=3, unit=2)
    profile.period_type.CopyFrom(profile.sample_type[1])
    (offset, address, size) = max(binary.segments, key=lambda each: each[2])
    profile.mapping.add(id=1, memory_start=moved, memory_limit=moved + size, file_offset=offset, build_id=4)
    locations: dict[int, int] = {}
    for column, pairs in enumerate((ranges, branches or {})):
        for pair, count in pairs.items():
            for at in pair:
                if at not in locations:
                    locations[at] = len(locations) + 1
                    own = {"mapping_id": 1, "address": moved + at - address} if at else {"address": 1}
                    profile.location.add(id=locations[at], **own)
            value = [0, 0]
            value[column] = count
            profile.sample.add(location_id=[locations[pair[1]], locations[pair[0]]], value=value)
    return profile.SerializeToString()
