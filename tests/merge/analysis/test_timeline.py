"""A timeline has the values of the tables of each step's merge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import Collection
from pprof_merge.analysis.grouping import NAMES_OF_FRAMES, Grouping
from pprof_merge.analysis.timeline import Timeline
from pprof_merge.analysis.top_table import TopTable
from pprof_merge.arrays import Int64s
from pprof_merge.merging.headers import column_order

from tests.merge.differential import read
from tests.merge.stacked import stacked
from tests.oracle.builder import World

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random


def of_name(
    collection: Collection, numbers: list[int], steps: list[int], by: Grouping, name: str
) -> Timeline:
    return Timeline.of(collection, numbers, steps, lambda frame: NAMES_OF_FRAMES[by](frame) == name)


def row(values: Int64s, table: TopTable, name: str) -> list[int]:
    """Return the row of a name; zeros if it has none."""
    found: list[int] = (
        values[table.names.index(name)].tolist() if name in table.names else [0] * values.shape[1]
    )
    return found


def check(collection: Collection, steps: list[int], by: Grouping, name: str) -> None:
    numbers = list(range(len(collection)))
    found = of_name(collection, numbers, steps, by, name)
    for step in range(max(steps) + 1):
        own = [number for number in numbers if steps[number] == step]
        if not own:
            assert not any(values[step].any() for values in (found.total, found.flat, found.cum))
            continue
        merged = collection.merge(own)
        order = column_order(merged.header.sample_types, found.header.sample_types)
        table = TopTable.of(merged, by)
        assert found.total[step].tolist() == table.total[order].tolist()
        assert found.flat[step].tolist() == row(table.flat[:, order], table, name)
        assert found.cum[step].tolist() == row(table.cum[:, order], table, name)


def test_every_step_is_the_table_of_its_merge(profiles: Path) -> None:
    collection = Collection()
    taken = list(collection.extend(read(profiles, "apisvc-*", "etl-*")))
    steps = [0, 0, 1, 3] + [4] * (len(taken) - 4)
    check(collection, steps, "function", "runtime.mallocgc")
    check(collection, steps, "package", "net/http")
    check(collection, steps, "function", "of no program")


@given(random=st.randoms(use_true_random=False), steps=st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_also_of_made_up_profiles(random: Random, steps: list[int]) -> None:
    world, collection = World(random), Collection()
    for _ in steps:
        collection.add(world.profile())
    check(collection, steps, "function", "main.run")
    check(collection, steps, "package", "net/http")


def test_recursion_and_what_has_no_stack() -> None:
    collection = Collection()
    collection.add(stacked({"a.f;a.g;a.f": 2, "a.g": 1, "": 4}))
    collection.add(stacked({"a.g": 5}, time_nanos=2))
    found = of_name(collection, [0, 1, 1], [0, 2, 2], "function", "a.f")
    assert found.total[:, 0].tolist() == [7, 0, 10]
    assert found.flat[:, 0].tolist() == [2, 0, 0]
    assert found.cum[:, 0].tolist() == [2, 0, 0]
    assert of_name(collection, [0, 1], [0, 1], "function", "a.g").cum[:, 0].tolist() == [3, 5]
    assert of_name(collection, [0], [0], "package", "a").cum[:, 0].tolist() == [3]
