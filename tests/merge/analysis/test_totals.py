"""Values below zero, as in the difference of two profiles: totals, shares and order are `go tool pprof`'s."""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import FORMATS, Collection, decode
from pprof_merge.analysis import (
    FlameGraph,
    FlameView,
    FunctionUse,
    Timeline,
    TopTable,
    WeighedStacks,
    count_samples,
    diff_tables,
    share_of,
    totals_of,
)

from tests.merge.analysis.test_function_use import CPU
from tests.merge.analysis.test_top_table import as_go_has_it
from tests.merge.go_top import go_top, pprof
from tests.merge.stacked import stacked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

UNIT = 10_000_000
SIGNED = {"main;a": -5, "main;b": 3}
_TOTAL = re.compile(r"of (\d+)(?:ns)? total")
_ROW = re.compile(r"^ *(-?\d+)(?:ns)? +(\S+)% +\S+% +(-?\d+)(?:ns)? +(\S+)%  (.*)$", re.MULTILINE)
STACKS = st.dictionaries(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=4).map(";".join),
    st.integers(-9, 9).filter(bool),
    min_size=1,
)


def check_as_go(profile: bytes, folder: Path) -> None:
    """Check that a table has Go's rows, in an order of Go's, and Go's total and shares."""
    table = TopTable.of(decode(profile), column=CPU)
    assert as_go_has_it(table) == go_top(profile, folder, "cpu", "nanoseconds")
    text = pprof(profile, folder, "-top", "-sample_index=cpu", "-unit=ns")
    total = int(table.total[0])
    (found,) = _TOTAL.findall(text)
    assert total == int(found)
    rows = {
        name: shares for _, *shares, name in ((row[0], row[1], row[3], row[4]) for row in _ROW.findall(text))
    }
    order = [row for row in table.order(0) if table.names[row] in rows]
    assert [abs(int(table.flat[row, 0])) for row in order] == [abs(int(row[0])) for row in _ROW.findall(text)]
    for row in order:
        shares = [share_of(int(values[row, 0]), total) for values in (table.flat, table.cum)]
        assert shares == pytest.approx([float(share) / 100 for share in rows[table.names[row]]], abs=1e-3)


@given(STACKS)
def test_tables_are_gos(tmp_path_factory: pytest.TempPathFactory, stacks: Mapping[str, int]) -> None:
    check_as_go(stacked(stacks), tmp_path_factory.mktemp("go"))


@pytest.mark.parametrize("option", ["-base", "-diff_base"])
def test_a_saved_difference_is_shown_as_go_shows_it(option: str, tmp_path: Path) -> None:
    (tmp_path / "base").write_bytes(stacked({"main;a": 40, "main;b": 10, "main;c": 7}))
    now = stacked({"main;a": 20, "main;b": 30, "main;c": 7})
    pprof(now, tmp_path, "-proto", "-output=difference", f"{option}=base")
    check_as_go(gzip.decompress((tmp_path / "difference").read_bytes()), tmp_path)


def test_every_view_has_shares_of_sizes() -> None:
    profile = decode(stacked(SIGNED))
    assert totals_of(profile).tolist() == [8, 8 * UNIT]
    assert count_samples(profile, CPU) == 8
    use = FunctionUse.of(profile, "main", CPU)
    assert (use.total, use.cum) == (8 * UNIT, -2 * UNIT)
    speedscope = json.loads(FORMATS["speedscope"].write(profile))["profiles"][CPU]
    assert (sorted(speedscope["weights"]), speedscope["endValue"]) == ([3 * UNIT, 5 * UNIT], 8 * UNIT)
    table = json.loads(FORMATS["json"].write(profile))
    assert table["total"] == [8, 8 * UNIT]
    assert [row["name"] for row in table["functions"]] == ["a", "b", "main"]
    top = TopTable.of(profile, column=CPU)
    (_, a, b) = diff_tables(top, TopTable.of(decode(stacked({"main;c": 1})), column=CPU), "flat")[:3]
    assert [(row.name, row.now.flat_share) for row in (a, b)] == [("a", 0.625), ("b", 0.375)]


def test_a_flame_graph_has_the_widths_of_sizes() -> None:
    stacks = WeighedStacks.of(decode(stacked(SIGNED)), CPU)
    graph = FlameGraph.of(stacks, FlameView(search="a"))
    found = {
        name: (total // UNIT, size // UNIT, weight)
        for name, (total,), (size,), weight in zip(
            graph.names, graph.total.tolist(), graph.size.tolist(), graph.weight.tolist(), strict=True
        )
    }
    assert found == {
        "": (-2, 8, 1.0),
        "main": (-2, 8, 1.0),
        "a": (-5, 5, 0.625),
        "b": (3, 3, 0.375),
    }
    assert graph.starts().tolist()[graph.names.index("b")] == 0.625
    both = FlameGraph.of(stacks.beside(WeighedStacks.of(decode(stacked({"main;a": 4})), CPU)), FlameView())
    assert both.size[0].tolist() == [8 * UNIT, 4 * UNIT]
    assert both.weight[both.names.index("a")] == (0.625 + 1) / 2


@given(st.lists(STACKS, min_size=1, max_size=5), st.data())
def test_every_step_of_time_is_the_table_of_its_merge(
    every: list[dict[str, int]], data: st.DataObject
) -> None:
    steps = [data.draw(st.integers(0, 2)) for _ in every]
    collection = Collection()
    for number, stacks in enumerate(every):
        collection.add(stacked(stacks, time_nanos=number + 1))
    found = Timeline.of(collection, range(len(every)), steps, lambda frame: frame.name == "a")
    for step in {*steps}:
        table = TopTable.of(collection.merge([at for at, each in enumerate(steps) if each == step]))
        assert found.total[step].tolist() == table.total.tolist()
        flat, cum = (
            (values[table.names.index("a")] if "a" in table.names else [0, 0])
            for values in (table.flat, table.cum)
        )
        assert (found.flat[step].tolist(), found.cum[step].tolist()) == ([*flat], [*cum])


def test_steps_of_time_that_cancel_out_have_their_values() -> None:
    collection = Collection()
    for number, value in enumerate((5, -5)):
        collection.add(stacked({"main;a": value}, time_nanos=number + 1))
    found = Timeline.of(collection, [0, 1], [0, 1], lambda frame: frame.name == "a")
    assert found.flat[:, 0].tolist() == [5, -5]
    assert found.total[:, 0].tolist() == [5, 5]


def test_totals_of_profiles_are_sizes() -> None:
    collection = Collection()
    collection.add(stacked(SIGNED))
    (sample_type,) = decode(stacked(SIGNED)).header.sample_types[:1]
    assert collection.totals([0], sample_type).tolist() == [8]
