"""Tables of functions, packages and files, compared with `go tool pprof -top`, and sums of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import decode, encode, merge
from pprof_merge.analysis.grouping import GROUPINGS, Grouping
from pprof_merge.analysis.stacks import default_column
from pprof_merge.analysis.top_table import TopSum, TopTable

from tests.merge.differential import read
from tests.merge.go_top import Table, go_flat_by_file, go_top
from tests.merge.go_use import go_lines
from tests.merge.stacked import stacked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_OF_GO: tuple[Grouping, ...] = ("function", "file")
SETS = {"services": ["apisvc-v1-*", "etl-*", "lintd-*"], "large": ["big-*"], "compiler": ["compile-*"]}


def as_go_has_it(table: TopTable) -> Table:
    """Return the table of one column, without the rows of 0, which Go leaves out."""
    rows = zip(table.names, table.flat[:, 0].tolist(), table.cum[:, 0].tolist(), strict=True)
    return {name: (flat, cum) for name, flat, cum in rows if flat or cum}


def summed(tables: Sequence[TopTable]) -> TopTable:
    total = TopSum(tables[0].flat.shape[1])
    for table in tables:
        total.add(table)
    return total.table()


def content(table: TopTable) -> Any:
    rows = zip(table.names, table.flat.tolist(), table.cum.tolist(), strict=True)
    return table.total.tolist(), {name: values for name, *values in rows if any(map(any, values))}


@pytest.mark.parametrize("patterns", SETS.values(), ids=SETS)
def test_sums_of_tables_are_gos_table_of_all_profiles(
    patterns: list[str], profiles: Path, tmp_path: Path
) -> None:
    every = [decode(profile) for profile in read(profiles, *patterns)]
    protobuf = encode(merge(every))
    types = {default_column(profile.header) for profile in every}
    assert types == {1}  # the column of cpu/nanoseconds, which -top shows
    of_functions, of_files = (
        summed([TopTable.of(profile, by).only(1) for profile in every]) for by in _OF_GO
    )
    expected = go_top(protobuf, tmp_path, "cpu", "nanoseconds")
    assert len(expected) > 100
    assert as_go_has_it(of_functions) == expected
    flat = {name: values[0] for name, values in as_go_has_it(of_files).items() if values[0]}
    assert flat == go_flat_by_file(protobuf, tmp_path, "cpu")


def test_lines_are_those_of_go(profiles: Path, tmp_path: Path) -> None:
    merged = merge(map(decode, read(profiles, "apisvc-v1-*", "etl-*")))
    lines = as_go_has_it(TopTable.of(merged, "line").only(1))
    assert len(lines) > 500
    assert lines == {name: row for name, row in go_lines(encode(merged), tmp_path).items() if any(row)}


def test_the_order_is_that_of_top(profiles: Path) -> None:
    (profile,) = map(decode, read(profiles, "etl-s2-000*"))
    table = TopTable.of(profile)
    for by, values in (("flat", table.flat[:, 1]), ("cum", table.cum[:, 1])):
        ordered = values[table.order(1, by)].tolist()  # type: ignore[arg-type]
        assert ordered == sorted(ordered, reverse=True)
        assert ordered[0] > ordered[-1]


STACKS = st.lists(st.sampled_from(["a.f", "a.g", "b.f", "f"]), max_size=4).map(";".join)


@given(
    every=st.lists(st.dictionaries(STACKS, st.integers(1, 1000), max_size=5), min_size=1, max_size=4),
    by=st.sampled_from([*GROUPINGS]),
)
def test_the_sum_of_tables_is_the_table_of_the_sum(every: list[dict[str, int]], by: Grouping) -> None:
    decoded = [decode(stacked(stacks)) for stacks in every]
    tables = [TopTable.of(profile, by) for profile in decoded]
    assert content(summed(tables)) == content(TopTable.of(merge(decoded), by))


def test_recursion_counts_once() -> None:
    profile = decode(stacked({"main.a;main.b;main.a;lib.c;main.a": 3, "main.b": 2}))
    table = TopTable.of(profile).only(0)
    assert content(table) == ([5], {"main.a": [[3], [3]], "main.b": [[2], [5]], "lib.c": [[0], [3]]})
    by_package = TopTable.of(profile, "package").only(0)
    assert content(by_package) == ([5], {"main": [[5], [5]], "lib": [[0], [3]]})
    assert by_package.order(0) == [by_package.names.index("main"), by_package.names.index("lib")]
