"""A format that reads only the first locations of stacks is the same, made from a merge with that depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import Collection, ProfileError, Weighting
from pprof_merge.formats import FORMATS, Format
from pprof_merge.merging.weights import PLAIN_WEIGHTING, WEIGHTS

from tests.merge.differential import read
from tests.oracle.builder import World, seeded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from random import Random

SHALLOW = [each for each in FORMATS.values() if each.depth is not None]
WEIGHTINGS = [
    PLAIN_WEIGHTING,
    *(Weighting(by) for by in WEIGHTS),
    Weighting("sum", half_life=3_600_000_000_000),
]


def written(
    collection: Collection,
    wanted: Format,
    depth: int | None,
    numbers: Sequence[int] | None = None,
    weighting: Weighting = PLAIN_WEIGHTING,
) -> bytes | str:
    """Return the output, or the error message if there is none."""
    try:
        return wanted.write(collection.merge(numbers, weighting, depth=depth))
    except ProfileError as error:
        return f"{type(error).__name__}: {error}"


def check(
    collection: Collection, numbers: Sequence[int] | None = None, weighting: Weighting = PLAIN_WEIGHTING
) -> list[bytes | str]:
    """Fail unless each format is the same with its depth as without; return the outputs."""
    shallow = [written(collection, each, each.depth, numbers, weighting) for each in SHALLOW]
    assert shallow == [written(collection, each, None, numbers, weighting) for each in SHALLOW]
    return shallow


@given(random=st.randoms(use_true_random=False), count=st.integers(1, 6))
def test_generated_profiles(random: Random, count: int) -> None:
    world = World(random, empty_strings=True)
    collection = Collection()
    for _ in range(count):
        collection.add(world.profile())
        if random.random() < 0.5:
            check(collection)
    check(collection, random.choices(range(count), k=count), random.choice(WEIGHTINGS))


@pytest.mark.parametrize("pattern", ["apisvc-*", "compile-*", "*.gz"])
def test_real_profiles(pattern: str, profiles: Path) -> None:
    collection, random = Collection(), seeded(1)
    count = len([*collection.extend(read(profiles, pattern))])
    assert all(isinstance(made, bytes) for made in check(collection))
    for weighting in WEIGHTINGS:
        check(collection, random.sample(range(count), count // 2), weighting)


@pytest.mark.parametrize("depth", [0, 1, 2, 5])
def test_a_merge_of_a_depth_has_the_samples_of_the_whole(depth: int, profiles: Path) -> None:
    collection = Collection()
    for profile in read(profiles, "lintd-*"):
        collection.add(profile)
    whole, shallow = collection.merge(), collection.merge(depth=depth)
    assert shallow.header == whole.header
    assert shallow.samples.values.tolist() == whole.samples.values.tolist()
    offsets = shallow.samples.location_offsets
    assert (offsets[1:] - offsets[:-1]).max() == depth
