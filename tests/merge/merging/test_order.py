"""A set of profiles gives the same bytes in any order, form and process, and merges can be merged again."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pprof_merge import compress, decode, encode, inflate, merge

from tests.merge.differential import merged, read
from tests.oracle.builder import World
from tests.oracle.content import content

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random


def test_every_order_gives_the_same_bytes(profiles: Path) -> None:
    inputs = [decode(profile) for profile in read(profiles, "etl-*", "lintd-*")]
    assert len({encode(merge(order)) for order in itertools.permutations(inputs)}) == 1


@settings(max_examples=settings().max_examples // 2)
@given(random=st.randoms(use_true_random=False), count=st.integers(2, 5))
def test_every_order_of_generated_profiles_gives_the_same_bytes(random: Random, count: int) -> None:
    world = World(random, empty_strings=True)
    inputs = [world.profile() for _ in range(count)]
    expected = merged(inputs)
    assert merged(inputs[::-1]) == expected
    assert merged(inputs[1:] + inputs[:1]) == expected


@settings(max_examples=settings().max_examples // 2)
@given(random=st.randoms(use_true_random=False), count=st.integers(1, 4))
def test_a_merge_merged_again_is_itself(random: Random, count: int) -> None:
    world = World(random, empty_strings=True)
    once = merged(world.profile() for _ in range(count))
    assert merged([once]) == once
    assert encode(decode(once)) == once


def test_a_real_merge_merged_again_is_itself(profiles: Path) -> None:
    once = merged(read(profiles, "*.gz"))
    assert merged([once]) == once
    assert encode(decode(once)) == once


@settings(max_examples=settings().max_examples // 2)
@given(random=st.randoms(use_true_random=False), cut=st.integers(1, 3))
def test_a_merge_of_merges_is_the_merge(random: Random, cut: int) -> None:
    world = World(random)
    inputs = [world.profile() for _ in range(4)]
    at_once = content(merged(inputs))
    in_two_steps = content(merged([merged(inputs[:cut]), merged(inputs[cut:])]))
    assert in_two_steps.sums() == at_once.sums()
    for name in ("sample_types", "period_type", "duration_nanos"):
        assert in_two_steps.header[name] == at_once.header[name]


def test_a_real_merge_of_merges_is_the_merge(profiles: Path) -> None:
    groups = [read(profiles, pattern) for pattern in ("apisvc-*", "compile-*", "etl-*", "lintd-*")]
    at_once = content(merged(itertools.chain(*groups)))
    in_two_steps = content(merged(map(merged, groups)))
    assert in_two_steps.sums() == at_once.sums()
    assert in_two_steps.total() == at_once.total()


def test_the_digest_is_that_of_the_bare_protobuf(profiles: Path) -> None:
    (profile,) = read(profiles, "etl-s2-000*")
    protobuf = inflate(profile)
    assert decode(profile).digest == decode(protobuf).digest == hashlib.sha256(protobuf).digest()


def test_gzip_or_bare_gives_the_same_bytes(profiles: Path) -> None:
    inputs = read(profiles, "etl-*")
    assert merged(map(inflate, inputs)) == merged(inputs)


def test_the_same_profile_twice_counts_twice(profiles: Path) -> None:
    (profile,) = read(profiles, "etl-s2-000*")
    once, twice = content(merged([profile])), content(merged([profile, profile]))
    assert twice.total() == tuple(2 * value for value in once.total())


def test_compressing_gives_gzip_without_name_or_time(profiles: Path) -> None:
    (profile,) = read(profiles, "etl-s2-000*")
    protobuf = inflate(profile)
    compressed = compress(protobuf)
    assert inflate(compressed) == protobuf
    assert compressed[:8] == b"\x1f\x8b\x08\0\0\0\0\0"  # deflate, no flags, no time
    assert compress(protobuf) == compressed


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_a_new_process_gives_the_same_bytes(seed: str, profiles: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from pprof_merge import *;"
        "inputs = [Path(name).read_bytes() for name in sys.argv[1:]];"
        "sys.stdout.buffer.write(compress(encode(merge(map(decode, inputs)))))"
    )
    names = sorted(str(name) for name in profiles.glob("etl-*"))
    finished = subprocess.run(
        [sys.executable, "-c", program, *names],
        env={**os.environ, "PYTHONHASHSEED": seed},
        check=True,
        capture_output=True,
    )
    assert finished.stdout == compress(merged(read(profiles, "etl-*")))
