"""Which programs of a profile lack names: as a naive count has it."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import Profile as Decoded
from pprof_merge import decode
from pprof_merge.symbols import bare_builds, unnamed_builds, unnamed_value
from pprof_proto.profile_pb2 import Profile

_BUILDS = [("", ""), ("abcd", "/bin/one"), ("abcd", "/bin/one"), ("", "/lib/other"), ("ef01", "")]
# The mapping of a location, counted from 1, 0 for none, and whether it has a function.
_LOCATIONS = st.lists(st.tuples(st.integers(0, len(_BUILDS)), st.booleans()), min_size=1, max_size=8)
_STACKS = st.lists(st.tuples(st.lists(st.integers(0, 7), max_size=6), st.integers(-5, 9)), max_size=12)


def profile_of(locations: list[tuple[int, bool]], stacks: list[tuple[list[int], int]]) -> Profile:
    profile = Profile(string_table=[b"", b"samples", b"count"])
    profile.sample_type.add(type=1, unit=2)
    for number, (build_id, file) in enumerate(_BUILDS, 1):
        profile.string_table.extend([build_id.encode(), file.encode()])
        strings = {"build_id": len(profile.string_table) - 2, "filename": len(profile.string_table) - 1}
        start = number << 20
        profile.mapping.add(id=number, memory_start=start, memory_limit=start + 4096, **strings)
    profile.function.add(id=1, name=1)
    for number, (mapping, is_named) in enumerate(locations, 1):
        location = profile.location.add(id=number, mapping_id=mapping, address=(mapping << 20) + number)
        if is_named:
            location.line.add(function_id=1)
    for stack, value in stacks:
        profile.sample.add(location_id=[1 + each % len(locations) for each in stack], value=[value])
    return profile


@given(_LOCATIONS, _STACKS)
def test_values_are_those_of_a_naive_count(
    locations: list[tuple[int, bool]], stacks: list[tuple[list[int], int]]
) -> None:
    sent = profile_of(locations, stacks)
    profile = decode(sent.SerializeToString())
    flat, cum = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for sample in sent.sample:
        frames = [locations[each - 1] for each in sample.location_id]
        bare = [_BUILDS[mapping - 1] if mapping else ("", "") for mapping, is_named in frames if not is_named]
        for build in {*bare}:
            cum[build] += abs(sample.value[0])
        if frames and not frames[0][1]:
            flat[bare[0]] += abs(sample.value[0])
    found = unnamed_builds(profile, 0)
    assert {(each.build_id.encode(), each.file.encode()) for each in found} == _kept(profile)
    for each in found:
        build = (each.build_id, each.file)
        assert (each.flat, each.cum) == (flat[build], cum[build])
    assert unnamed_value(profile, 0) == flat.total()
    assert [each.flat for each in found] == sorted((each.flat for each in found), reverse=True)
    assert bare_builds(profile) == {each.build_id for each in found} - {""}


def _kept(profile: Decoded) -> set[tuple[bytes, bytes]]:
    """Return the build ids and files of the mappings of the locations without a function, one by one."""
    locations, mappings, strings = profile.locations, profile.mappings, profile.strings
    found = set()
    for row in range(len(locations)):
        if locations.lines.offsets[row] == locations.lines.offsets[row + 1]:
            mapping = int(locations.mapping[row])
            texts = (mappings.build_id[mapping], mappings.filename[mapping]) if mapping >= 0 else (0, 0)
            found.add((strings[texts[0]], strings[texts[1]]))
    return found
