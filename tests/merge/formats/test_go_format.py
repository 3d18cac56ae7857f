"""The format `go`: Go's compiler takes the same from it as from the whole profile, and it is much smaller."""

from __future__ import annotations

import gzip
import itertools
import os
import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import Profile, UnfitForFormat, compress, decode, encode, merge
from pprof_merge.analysis.call_edges import call_edges
from pprof_merge.formats.go import go, reduced
from pprof_proto import profile_pb2

from tests.merge.differential import read
from tests.oracle.builder import HUGE, World
from tests.oracle.oracle import RefusalError, go_root
from tests.oracle.preprofile import preprofile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NOTHING = b"GO PREPROFILE V1\n"
CPU = (("samples", "count"), ("cpu", "nanoseconds"))

# A frame is (function, line); functions start at line 10 unless a test says otherwise.
Frame = tuple[str, int]
# A sample is a value and its locations: each has an address and frames, the innermost first.
Stack = tuple[int, list[tuple[int, list[Frame]]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("go")


def check_as_compiler(profile: Profile, folder: Path) -> bytes:
    """Check that the compiler takes the same from both profiles, or refuses both; return what it takes."""
    try:
        expected = preprofile(compress(encode(profile)), folder)
    except RefusalError as refusal:
        with pytest.raises(UnfitForFormat) as unfit:
            go(profile)
        about = "start line" if "start_line" in str(refusal) else "samples/count"
        assert about in str(unfit.value)
        return b""
    assert preprofile(go(profile), folder) == expected
    return expected


def written(
    stacks: Sequence[Stack],
    types: Sequence[tuple[str, str]] = CPU[:1],
    start_lines: dict[str, int] | None = None,
) -> Profile:
    """Return a profile with these samples; all values of a sample are the same."""
    message = profile_pb2.Profile(string_table=[b""])
    numbers: dict[str, int] = {"": 0}

    def text(string: str) -> int:
        if string not in numbers:
            numbers[string] = len(message.string_table)
            message.string_table.append(string.encode())
        return numbers[string]

    functions: dict[str, int] = {}
    for kind, unit in types:
        message.sample_type.add(type=text(kind), unit=text(unit))
    for value, locations in stacks:
        sample = message.sample.add(value=[value] * len(types))
        for address, frames in locations:
            location = message.location.add(id=len(message.location) + 1, address=address)
            sample.location_id.append(location.id)
            for name, line in frames:
                if name not in functions:
                    functions[name] = len(functions) + 1
                    start_line = (start_lines or {}).get(name, 10)
                    message.function.add(id=functions[name], name=text(name), start_line=start_line)
                location.line.add(function_id=functions[name], line=line)
    return decode(message.SerializeToString())


def edges(profile: Profile) -> list[tuple[bytes, bytes, int, int]]:
    """Return the edges of a profile as (caller, callee, offset, weight)."""
    found = call_edges(profile)
    columns = (found.caller.tolist(), found.callee.tolist(), found.offset.tolist(), found.weight.tolist())
    return [(found.names[a], found.names[b], *rest) for a, b, *rest in zip(*columns, strict=True)]


def test_each_real_profile(profiles: Path, folder: Path) -> None:
    for profile in read(profiles, "*.gz"):
        assert len(check_as_compiler(decode(profile), folder)) > 1000


@pytest.mark.parametrize(
    "pattern", ["apisvc-v1-*", "apisvc-v1lab-*", "apisvc-*", "big-*", "compile-*", "etl-*", "lintd-*", "*.gz"]
)
def test_merges_of_real_profiles(pattern: str, profiles: Path, folder: Path) -> None:
    assert len(check_as_compiler(merge(map(decode, read(profiles, pattern))), folder)) > 10_000


def test_the_compilers_own_profile(profiles: Path, folder: Path) -> None:
    default = decode((go_root() / "src/cmd/compile/default.pgo").read_bytes())
    check_as_compiler(default, folder)
    check_as_compiler(merge([default, *map(decode, read(profiles, "compile-*"))]), folder)


@given(random=st.randoms(use_true_random=False), count=st.integers(1, 3))
def test_generated_profiles(random: Random, count: int, folder: Path) -> None:
    world = World(random)
    if world.sample_types[0][0] != b"x":
        generated = [decode(world.profile()) for _ in range(count)]
        for profile in (*generated, merge(generated)):
            check_as_compiler(profile, folder)


def test_more_pairs_of_locations_than_32_bits_count(folder: Path) -> None:
    calls = [[(1, [(f"callee{n % 7}", 12)]), (2, [(f"caller{n % 5}", 10 + n % 11)])] for n in range(40_000)]
    profile = written([(1 + number % 3, stack) for number, stack in enumerate(calls)])
    assert len(profile.locations) ** 2 > 1 << 32
    assert len(edges(profile)) == 7 * 5 * 11
    check_as_compiler(profile, folder)


def test_only_the_two_leaf_locations_count(folder: Path) -> None:
    profile = written([(3, [(1, [("leaf", 11)]), (2, [("mid", 15)]), (3, [("root", 19)])])])
    assert edges(profile) == [(b"mid", b"leaf", 5, 3)]
    assert check_as_compiler(profile, folder) == NOTHING + b"mid\nleaf\n5 3\n"


def test_inlined_lines_are_calls_too(folder: Path) -> None:
    stack = [(1, [("in", 12), ("out", 13)]), (2, [("deep", 14), ("top", 15)])]
    assert edges(written([(1, stack)])) == [
        (b"deep", b"out", 4, 1),
        (b"out", b"in", 3, 1),
        (b"top", b"deep", 5, 1),
    ]
    assert edges(written([(1, stack[:1])])) == [(b"out", b"in", 3, 1)]
    check_as_compiler(written([(1, stack), (2, stack[:1]), (4, stack[1:])]), folder)


@pytest.mark.parametrize("line", [9, 10, 12])
def test_recursion(line: int, folder: Path) -> None:
    """A function calls itself, also from the line before its first, at offset -1."""
    again, once = (2, [("f", line)]), (1, [("f", line)])
    other = (3, [("f", 30)])
    for stacks in ([[once, again]], [[once, again], [other, again]], [[once, other], [other, again]]):
        profile = written([(5, stack) for stack in stacks])
        assert len(edges(profile)) > 0
        check_as_compiler(profile, folder)


def test_a_node_does_not_call_itself(folder: Path) -> None:
    same = (1, [("f", 12)])
    profile = written([(5, [same, same]), (1, [same, (2, [("g", 12)])])])
    assert edges(profile) == [(b"g", b"f", 2, 1)]
    check_as_compiler(profile, folder)


def test_an_edge_counts_once_a_sample(folder: Path) -> None:
    round_trip = [("f", 12), ("g", 13), ("f", 12), ("g", 13)]
    profile = written([(5, [(1, round_trip)])])
    assert edges(profile) == [(b"f", b"g", 2, 5), (b"g", b"f", 3, 5)]
    check_as_compiler(profile, folder)


def test_locations_without_lines_and_functions_without_names(folder: Path) -> None:
    stacks: list[Stack] = [
        (1, [(1, [("f", 12)]), (2, [])]),
        (2, [(2, []), (1, [("f", 12)])]),
        (4, [(2, []), (3, [])]),
        (8, [(1, [("", 12)]), (4, [("f", 13)])]),
    ]
    profile = written(stacks)
    assert (b"", b"", 0, 4) in edges(profile)
    check_as_compiler(profile, folder)


def test_edges_of_one_weight_are_in_the_order_of_their_names(folder: Path) -> None:
    """The compiler finds hot edges by weight, and sorts edges of one weight by name."""
    calls = itertools.product(["b", "a", "\N{DEGREE SIGN}"], ["z", "y"], [13, 12])
    profile = written([(7, [(1, [(callee, 10)]), (2, [(caller, line)])]) for caller, callee, line in calls])
    assert check_as_compiler(profile, folder).startswith(NOTHING + b"a\ny\n2 7\na\ny\n3 7\na\nz\n")


@pytest.mark.parametrize(
    "values",
    [(1, -1, 3), (-1, 1, 3), (-1, -2, -3), (HUGE, HUGE, 2), (HUGE, 1, 0), (1, -1, 0), (-HUGE - 1, 5, 1)],
)
def test_values_that_cancel_or_wrap(values: tuple[int, int, int], folder: Path) -> None:
    site, first, second = (1, [("caller", 12)]), (2, [("first", 12)]), (3, [("second", 12)])
    alone = (4, [("third", 12)])
    ways: list[list[list[tuple[int, list[Frame]]]]] = [
        [[first, site], [first, site], [second, site]],
        [[first, site], [second, site], [alone, first]],
        [[first, site], [site], [alone, second]],
        [[site], [first, site], [site, alone]],
    ]
    for stacks in ways:
        check_as_compiler(written(list(zip(values, stacks, strict=True))), folder)


def test_an_edge_that_cancels_out_is_still_an_edge(folder: Path) -> None:
    stack = [(2, [("callee", 12)]), (1, [("caller", 12)])]
    profile = written([(1, stack), (-1, stack), (1, stack[1:]), (9, [(4, [("x", 10)]), (5, [("y", 10)])])])
    assert (b"caller", b"callee", 2, 0) in edges(profile)
    assert b"caller\ncallee\n2 0\n" in check_as_compiler(profile, folder)


def test_edges_that_add_up_to_0_are_ignored(folder: Path) -> None:
    one, other = [(1, [("a", 11)]), (2, [("b", 12)])], [(3, [("c", 13)]), (4, [("d", 14)])]
    assert check_as_compiler(written([(5, one), (-5, other)]), folder) == NOTHING


@pytest.mark.parametrize("stacks", [[], [(0, [(1, [("f", 10)]), (2, [("g", 12)])])], [(5, [])]])
def test_a_profile_without_samples_is_ignored(stacks: list[Stack], folder: Path) -> None:
    assert check_as_compiler(written(stacks), folder) == NOTHING
    assert len(reduced(written(stacks)).samples) == 0


def test_calls_between_functions_without_start_lines_count_from_line_0(folder: Path) -> None:
    stack = [(2, [("callee", 12)]), (1, [("caller", 15)])]
    profile = written([(5, stack)], start_lines={"caller": 0})
    assert edges(profile) == [(b"caller", b"callee", 15, 5)]
    check_as_compiler(profile, folder)


def test_a_profile_without_any_start_line_fails_here_as_it_fails_the_build(folder: Path) -> None:
    stack = [(2, [("callee", 12)]), (1, [("caller", 15)])]
    with pytest.raises(UnfitForFormat, match="no function has a start line"):
        go(written([(5, stack)], start_lines={"caller": 0, "callee": 0}))
    for depth in range(3):
        check_as_compiler(written([(5, stack[:depth])], start_lines={"caller": 0, "callee": 0}), folder)


@pytest.mark.parametrize(
    ("types", "column"),
    [(CPU, 0), (CPU[::-1], 0), ((("x", "count"), *CPU), 1), ((("cpu", "ns"), CPU[1], CPU[0]), 1)],
)
def test_the_first_sample_type_that_the_compiler_knows(
    types: Sequence[tuple[str, str]], column: int, folder: Path
) -> None:
    profile = written([(5, [(2, [("callee", 12)]), (1, [("caller", 15)])])], types)
    assert [str(kind) for kind in reduced(profile).header.sample_types] == ["/".join(types[column])]
    check_as_compiler(profile, folder)


def test_other_sample_types_are_refused_by_name(folder: Path) -> None:
    profile = written([(5, [(1, [("f", 12)])])], [("alloc_space", "bytes"), ("samples", "")])
    with pytest.raises(UnfitForFormat, match=r"needs .*cpu/nanoseconds; .*alloc_space/bytes or samples/"):
        go(profile)
    check_as_compiler(profile, folder)


def test_what_the_compiler_does_not_read_changes_no_byte(profiles: Path) -> None:
    content = profile_pb2.Profile.FromString(gzip.decompress(read(profiles, "apisvc-v1lab-*")[0]))
    expected = go(decode(content.SerializeToString()))
    content.time_nanos += 1
    content.period = 1
    content.comment.append(0)
    for sample in content.sample:
        del sample.label[:]
        if len(sample.location_id) > 2:
            sample.location_id.append(sample.location_id[-1])
    for location in content.location:
        location.address += 1 << 20
        location.mapping_id = 0
    for function in content.function:
        function.filename = function.system_name = 0
    del content.mapping[:]
    content.sample.sort(key=lambda sample: tuple(sample.location_id))
    content.location.sort(key=lambda location: -location.id)
    content.function.sort(key=lambda function: -function.id)
    assert go(decode(content.SerializeToString())) == expected


def test_reducing_twice_changes_nothing(profiles: Path) -> None:
    once = go(merge(map(decode, read(profiles, "big-*"))))
    assert go(decode(once)) == once


def test_reduced_profiles_merge_to_the_reduced_merge(profiles: Path) -> None:
    whole = [decode(profile) for profile in read(profiles, "apisvc-*")]
    assert go(merge(map(reduced, whole))) == go(merge(whole))


def test_bytes_do_not_depend_on_the_order_of_sets(profiles: Path) -> None:
    program = "import sys; from pprof_merge import decode; from pprof_merge.formats.go import go\n"
    program += "sys.stdout.buffer.write(go(decode(sys.stdin.buffer.read())))"
    profile = read(profiles, "compile-*")[0]
    written = [
        subprocess.run(
            [sys.executable, "-c", program],
            input=profile,
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert written == [go(decode(profile))] * 2


def test_outer_callers_change_nothing(profiles: Path) -> None:
    """The more stacks end in the same calls, the smaller the format is compared with the whole merge."""
    content = profile_pb2.Profile.FromString(gzip.decompress(read(profiles, "lintd-*")[0]))
    expected = go(decode(content.SerializeToString()))
    for number, sample in enumerate(content.sample):
        if len(sample.location_id) > 2:
            sample.location_id.extend(content.location[number % each].id for each in (7, 11, 13))
    assert go(decode(content.SerializeToString())) == expected


def test_it_is_much_smaller(profiles: Path) -> None:
    default = decode((go_root() / "src/cmd/compile/default.pgo").read_bytes())
    for whole in (default, merge([default, *map(decode, read(profiles, "compile-*"))])):
        assert 5 * len(go(whole)) < len(compress(encode(whole)))
