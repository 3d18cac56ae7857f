"""Our merge equals google/pprof's `profile.Merge` and `WriteUncompressed`, byte for byte."""

from __future__ import annotations

import gzip
import itertools
import weakref
from random import Random
from typing import TYPE_CHECKING

import pprof_merge
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import IncompatibleProfiles, ProfileError, decode, merge
from pprof_proto.profile_pb2 import Profile

from tests.merge.differential import canonical, check_as_go, check_same, merged, read
from tests.oracle.builder import World, seeded
from tests.oracle.content import content
from tests.oracle.oracle import Oracle, RefusalError, go_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATTERNS = ["apisvc-v1-*", "apisvc-v1lab-*", "apisvc-v2-*", "big-*", "compile-*", "etl-*", "lintd-*"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_real_profiles_of_one_program(pattern: str, profiles: Path, oracle: Oracle) -> None:
    check_as_go(read(profiles, pattern), oracle)


@pytest.mark.parametrize("patterns", [*itertools.combinations(PATTERNS, 2)], ids="+".join)
def test_real_profiles_of_two_programs(patterns: tuple[str, str], profiles: Path, oracle: Oracle) -> None:
    check_as_go(read(profiles, *patterns), oracle)


def test_all_real_profiles(profiles: Path, oracle: Oracle) -> None:
    ours = content(check_as_go(read(profiles, "*.gz"), oracle))
    assert len(ours.samples) > 5000
    assert any(stack.tags for stack in ours.samples)


def test_one_real_profile_alone(profiles: Path, oracle: Oracle) -> None:
    for profile in read(profiles, "*.gz"):
        check_as_go([profile], oracle)


def test_the_compilers_own_profile(profiles: Path, oracle: Oracle) -> None:
    default = (go_root() / "src/cmd/compile/default.pgo").read_bytes()
    check_as_go([default], oracle)
    check_as_go([default, *read(profiles, "compile-*")], oracle)


def test_more_than_is_numbered_at_a_time(oracle: Oracle) -> None:
    # Functions that share their names, samples with labels before samples without, and a very deep stack.
    profiles = []
    for number in range(2):
        names = [b"", b"samples", b"count", b"key", *(f"main.function{row}".encode() for row in range(400))]
        profile = Profile(string_table=names, time_nanos=number + 1)
        profile.sample_type.add(type=1, unit=2)
        for row in range(800):
            name = 4 + (row + number) % 400
            profile.function.add(id=row + 1, name=name, filename=row // 400, start_line=row % 3)
            profile.location.add(id=row + 1, address=(row << 21) + 1).line.add(function_id=row + 1, line=row)
        for row in range(700):
            sample = profile.sample.add(value=[row + 1], location_id=[row % 800 + 1, (7 * row) % 800 + 1])
            if row < 300:
                sample.label.add(key=3, num=row % 11)
        profile.sample.add(value=[1 << 30], location_id=[row % 800 + 1 for row in range(9000)])
        profiles.append(profile.SerializeToString())
    assert len(content(check_as_go(profiles, oracle)).samples) > 700


@given(random=st.randoms(use_true_random=False), count=st.integers(1, 4))
def test_generated_profiles_that_shrink(random: Random, count: int, oracle: Oracle) -> None:
    world = World(random)
    check_as_go([world.profile() for _ in range(count)], oracle)


@pytest.mark.parametrize("seed", range(5))
def test_many_generated_profiles(seed: int, oracle: Oracle) -> None:
    random = seeded(seed)
    for _ in range(100):
        world = World(random)
        check_as_go([world.profile() for _ in range(1 + random.randrange(5))], oracle)


def test_labels_with_an_empty_string_vanish_when_read(oracle: Oracle) -> None:
    # Go keeps such labels in memory and drops them when it writes. So let Go rewrite its inputs first.
    random = seeded(2)
    as_go_reads_it = 0
    for _ in range(150):
        world = World(random, empty_strings=True)
        inputs = canonical([world.profile() for _ in range(1 + random.randrange(3))])
        theirs = oracle.merge([oracle.rewrite(profile) for profile in inputs])
        check_same(merged(inputs), theirs)
        as_go_reads_it += theirs == oracle.merge(inputs)
    assert as_go_reads_it < 150, "no case had such a label"


def test_sample_types_take_the_order_of_the_first_profile(profiles: Path, oracle: Oracle) -> None:
    first, second, third = map(_parsed, canonical(read(profiles, "etl-*")))
    in_order = [first.SerializeToString(), second.SerializeToString(), third.SerializeToString()]
    second.sample_type.reverse()
    for sample in second.sample:
        sample.value.reverse()
    swapped = [in_order[0], second.SerializeToString(), in_order[2]]
    with pytest.raises(RefusalError, match="incompatible sample types"):
        oracle.merge(swapped)
    check_same(merged(swapped), oracle.merge(in_order))


def test_the_largest_columns_of_inlined_lines_are_kept(oracle: Oracle) -> None:
    # Go takes locations that differ only in these columns for one, and keeps the columns that it sees first.
    inputs = [_with_columns(7, time=1), _with_columns(9, time=2), _with_columns(8, time=3)]
    assert _columns(oracle.merge(inputs)) == [7, 3]
    assert _columns(merged(inputs)) == [9, 3]
    assert content(merged(inputs)).total() == (30,)


def test_columns_at_locations_without_samples_do_not_count(oracle: Oracle) -> None:
    unused = Profile.FromString(_with_columns(9, time=1))
    unused.sample[0].value[0] = 0
    inputs = [unused.SerializeToString(), _with_columns(7, time=2)]
    assert _columns(check_as_go(inputs, oracle)) == [7, 3]
    del unused.sample[:]
    inputs = [unused.SerializeToString(), _with_columns(7, time=2)]
    assert _columns(check_as_go(inputs, oracle)) == [7, 3]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda profile: profile.sample_type[0].ClearField("unit"), "sample types"),
        (lambda profile: profile.ClearField("period_type"), "period types"),
    ],
)
def test_other_types_are_incompatible(change: object, words: str, profiles: Path, oracle: Oracle) -> None:
    first, second, _ = map(_parsed, read(profiles, "etl-*"))
    assert callable(change)
    change(second)
    inputs = [first.SerializeToString(), second.SerializeToString()]
    with pytest.raises(RefusalError, match=words):
        oracle.merge(inputs)
    with pytest.raises(IncompatibleProfiles, match=words.removesuffix("s")):
        merged(inputs)


def test_one_more_sample_type_is_incompatible(profiles: Path) -> None:
    first, second, _ = map(_parsed, read(profiles, "etl-*"))
    second.sample_type.append(second.sample_type[0])
    for sample in second.sample:
        sample.value.append(1)
    with pytest.raises(IncompatibleProfiles):
        merged([first.SerializeToString(), second.SerializeToString()])


def test_merging_no_profile_is_an_error(oracle: Oracle) -> None:
    with pytest.raises(RefusalError):
        oracle.merge([])
    with pytest.raises(ProfileError):
        merge([])


def test_profiles_are_not_kept(profiles: Path) -> None:
    taken: list[weakref.ref[object]] = []

    def stream() -> Iterator[pprof_merge.Profile]:
        for inputs in read(profiles, "lintd-*", "etl-*"):
            profile = decode(inputs)
            taken.append(weakref.ref(profile.samples.values))
            yield profile
            del profile
            # `merge` still holds the last profile when it asks for the next one.
            assert [kept() for kept in taken[:-1]] == [None] * (len(taken) - 1)

    assert len(merge(stream()).samples)


def _parsed(profile: bytes) -> Profile:
    return Profile.FromString(gzip.decompress(profile))


def _with_columns(inner: int, time: int) -> bytes:
    profile = Profile(string_table=[b"", b"x", b"inlined", b"caller"], time_nanos=time)
    profile.sample_type.add(type=1)
    profile.function.add(id=1, name=2)
    profile.function.add(id=2, name=3)
    location = profile.location.add(id=1)
    location.line.add(function_id=1, line=5, column=inner)
    location.line.add(function_id=2, line=6, column=3)
    profile.sample.add(location_id=[1], value=[10])
    return profile.SerializeToString()


def _columns(protobuf: bytes) -> list[int]:
    (location,) = Profile.FromString(protobuf).location
    return [line.column for line in location.line]
