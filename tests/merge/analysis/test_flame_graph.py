"""Flame graphs, compared with trees built stack by stack, and with the tables of the same profiles."""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import Budget, OutputTooLarge, decode, merge
from pprof_merge.analysis.diff import usage_by_name
from pprof_merge.analysis.flame_graph import MAX_LEVELS, FlameGraph, FlameView
from pprof_merge.analysis.focus import focus_calls
from pprof_merge.analysis.top_table import TopTable
from pprof_merge.analysis.weighed_stacks import WeighedStacks
from pprof_proto.profile_pb2 import Profile

from tests.merge.differential import read
from tests.merge.stacked import stacked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pprof_merge.analysis import Grouping

WHOLE = FlameView(least=0, most=10**9)
STACKS = st.dictionaries(
    st.lists(st.sampled_from(["a", "b", "Main", "main"]), max_size=5).map(";".join),
    st.integers(1, 1000),
    min_size=1,
    max_size=12,
)

Chain = tuple[str, ...]


def stacks_of(stacks: Mapping[str, int]) -> WeighedStacks:
    return WeighedStacks.of(decode(stacked(stacks)), 0)


def chain_of(graph: FlameGraph, node: int) -> Chain:
    return tuple(graph.names[called] for called in graph.chain(node)[1:])


def content(graph: FlameGraph) -> dict[Chain, tuple[list[int], list[int]]]:
    """Return the own and total values of each chain."""
    return {
        chain_of(graph, node): (graph.own[node].tolist(), graph.total[node].tolist())
        for node in range(len(graph.names))
    }


def plainly(stacks: Mapping[str, int]) -> dict[Chain, tuple[list[int], list[int]]]:
    own: Counter[Chain] = Counter()
    total: Counter[Chain] = Counter()
    for stack, count in stacks.items():
        names = tuple(stack.split(";")) if stack else ()
        own[names] += count
        for depth in range(len(names) + 1):
            total[names[:depth]] += count
    return {chain: ([own[chain]], [total[chain]]) for chain in total}


def node_of(graph: FlameGraph, *names: str) -> int:
    (node,) = (node for node in range(len(graph.names)) if chain_of(graph, node) == names)
    return node


@given(STACKS)
def test_the_whole_graph_is_the_tree_of_all_stacks(stacks: dict[str, int]) -> None:
    assert content(FlameGraph.of(stacks_of(stacks), WHOLE)) == plainly(stacks)


@given(STACKS, st.data())
def test_a_view_of_a_node_is_what_is_below_it_and_its_callers(stacks: dict[str, int], data: Any) -> None:
    whole = FlameGraph.of(stacks_of(stacks), WHOLE)
    node = data.draw(st.integers(0, len(whole.names) - 1))
    root = chain_of(whole, node)
    seen = FlameGraph.of(stacks_of(stacks), FlameView(root=int(whole.key[node]), least=0))
    assert chain_of(seen, seen.root) == root
    expected = plainly(stacks)
    assert content(seen) == {
        chain: values
        for chain, values in expected.items()
        if chain[: len(root)] == root or root[: len(chain)] == chain
    }


@given(STACKS, st.floats(0, 1), st.integers(1, 20))
def test_what_is_too_small_is_left_out(stacks: dict[str, int], least: float, most: int) -> None:
    every, total = plainly(stacks), sum(stacks.values())
    seen = FlameGraph.of(stacks_of(stacks), FlameView(least=least, most=most))
    large = {chain: values for chain, values in every.items() if chain and values[1][0] / total >= least}
    shown = content(seen)
    assert len(shown) == 1 + min(len(large), most)
    assert {chain: every[chain] for chain in shown} == shown
    assert {*shown} - {()} <= {*large}
    smallest = min((shown[chain][1] for chain in shown if chain), default=[0])
    assert all(large[chain][1] <= smallest for chain in {*large} - {*shown})


@given(STACKS)
def test_nodes_lie_side_by_side_within_their_caller(stacks: dict[str, int]) -> None:
    graph = FlameGraph.of(stacks_of(stacks), WHOLE)
    starts, ends = graph.starts(), graph.starts() + graph.weight
    for caller in range(len(graph.names)):
        called = sorted(np.flatnonzero(graph.parent == caller).tolist(), key=starts.__getitem__)
        for left, right in pairwise(called):
            assert ends[left] == pytest.approx(starts[right])
            assert (-graph.weight[left], graph.names[left]) <= (-graph.weight[right], graph.names[right])
        if called:
            assert starts[called[0]] == starts[caller]
            assert ends[called[-1]] <= ends[caller] + 1e-9


@given(STACKS, st.sampled_from(["a", "MAIN", "x", ""]))
def test_a_search_adds_up_the_stacks_with_a_match(stacks: dict[str, int], search: str) -> None:
    def has_match(stack: str) -> bool:
        return bool(search) and search.lower() in stack.lower()

    graph = FlameGraph.of(stacks_of(stacks), FlameView(least=0, search=search))
    assert graph.matched.tolist() == [sum(count for stack, count in stacks.items() if has_match(stack))]
    assert graph.is_match.tolist() == [has_match(name) for name in graph.names]
    names = {name for stack in stacks for name in stack.split(";") if has_match(name)}
    assert graph.n_matches == len(names - {""})


def test_a_search_is_of_what_is_below_the_root() -> None:
    stacks = stacks_of({"a;b;x": 5, "c;x": 3, "a;b": 2})
    whole = FlameGraph.of(stacks, WHOLE)
    root = int(whole.key[node_of(whole, "a", "b")])
    assert FlameGraph.of(stacks, FlameView(root=root, search="x")).matched.tolist() == [5]


@given(STACKS, STACKS)
def test_two_sides_are_both_trees_in_one(now: dict[str, int], base: dict[str, int]) -> None:
    graph = FlameGraph.of(stacks_of(now).beside(stacks_of(base)), WHOLE)
    of_now, of_base, none = plainly(now), plainly(base), ([0], [0])
    assert content(graph) == {
        chain: tuple(a + b for a, b in zip(of_now.get(chain, none), of_base.get(chain, none), strict=True))
        for chain in of_now | of_base
    }
    totals = graph.total / graph.total[0]
    assert graph.weight.tolist() == pytest.approx(totals.mean(axis=1).tolist())


def test_a_side_without_anything_takes_no_width() -> None:
    graph = FlameGraph.of(stacks_of({"a;b": 4, "a": 4}).beside(stacks_of({"a": 0})), WHOLE)
    assert graph.weight[node_of(graph, "a", "b")] == 0.5


def test_nothing_is_a_graph_of_the_whole_alone() -> None:
    assert content(FlameGraph.of(stacks_of({"a;b": 0}), FlameView())) == {(): ([0], [0])}


def test_a_key_of_nothing_shows_the_whole() -> None:
    graph = FlameGraph.of(stacks_of({"a;b": 4}), FlameView(root=123))
    assert (graph.root, len(graph.names)) == (0, 3)


def test_calls_end_where_they_are_too_deep_to_see() -> None:
    graph = FlameGraph.of(stacks_of({";".join(["f"] * (MAX_LEVELS + 5)): 4}), FlameView(most=10**6))
    assert graph.depth.max() == MAX_LEVELS


def test_real_profiles_add_up_to_their_table(profiles: Path) -> None:
    merged = merge([decode(profile) for profile in read(profiles, "apisvc-v1-*", "compile-*")])
    graph = FlameGraph.of(WeighedStacks.of(merged, 1), WHOLE)
    table = usage_by_name(TopTable.of(merged).only(1))
    flat: Counter[str] = Counter()
    for name, own in zip(graph.names, graph.own[:, 0].tolist(), strict=True):
        flat[name] += own
    assert len(graph.names) > 2000
    assert +flat == Counter({name: usage.flat for name, usage in table.items() if usage.flat})


def test_each_call_says_in_which_binary_it_is(profiles: Path) -> None:
    (content,) = read(profiles.with_name("postgres"), "simple*")
    written = Profile.FromString(gzip.decompress(content))
    texts, functions = written.string_table, {each.id: each for each in written.function}
    files = {each.id: texts[each.filename].rpartition(b"/")[2].decode() for each in written.mapping}
    possible = defaultdict[str, set[str]](set)
    for location in written.location:
        binary = files[location.mapping_id]
        names = [texts[functions[line.function_id].name].decode() for line in location.line]
        for name in names or [f"[{binary}]"]:
            possible[name].add(binary)
    weighed = WeighedStacks.of(decode(content), 1)
    for stacks in (weighed, WeighedStacks.joined([weighed, stacks_of({"a": 1})]), weighed.beside(weighed)):
        graph = FlameGraph.of(stacks.below(["all"], np.zeros(len(stacks.values), np.int64)), WHOLE)
        assert graph.binaries[:2] == ["", ""]
        assert {"postgres", "[kernel.kallsyms]", "libc.so.6"} <= {*graph.binaries}
        for name, binary in zip(graph.names[2:], graph.binaries[2:], strict=True):
            assert binary in possible[name] or (name, binary) == ("a", "service")


@given(st.lists(STACKS, max_size=3))
def test_joined_stacks_are_added_up(several: list[dict[str, int]]) -> None:
    together = Counter[str]()
    for stacks in several:
        together.update(stacks)
    joined = WeighedStacks.joined([*map(stacks_of, several)])
    assert joined.values.shape == (sum(map(len, several)), 1)
    expected = plainly(together) if several else {(): ([0], [0])}
    assert content(FlameGraph.of(joined, WHOLE)) == expected
    if several:
        with pytest.raises(OutputTooLarge, match="flame graph"):
            WeighedStacks.joined([stacks_of({"a;b": 1}), stacks_of({"b;c": 1})], Budget(15))


@given(STACKS, st.lists(st.sampled_from(["a", "b", "main"]), max_size=3))
def test_a_focus_has_the_stacks_that_begin_with_its_calls(stacks: dict[str, int], calls: list[str]) -> None:
    focused = focus_calls(decode(stacked(stacks)), calls)
    chosen = {
        stack: count
        for stack, count in stacks.items()
        if (stack.split(";") if stack else [])[: len(calls)] == calls
    }
    assert len(focused.samples) == len(chosen)
    found = content(FlameGraph.of(WeighedStacks.of(focused, 0), WHOLE))
    assert found == (plainly(chosen) if chosen else {(): ([0], [0])})


COLLAPSING = [("function", True), ("line", False), ("package", False), ("file", True)]


@given(STACKS, st.booleans())
def test_recursion_is_collapsed(stacks: dict[str, int], is_collapsed: bool) -> None:
    weighed = WeighedStacks.of(decode(stacked(stacks)), 0, is_collapsed=is_collapsed)
    expected: Counter[str] = Counter()
    for stack, count in stacks.items():
        names = [name for name, _ in groupby(stack.split(";"))] if is_collapsed else [stack]
        expected[";".join(names)] += count
    assert content(FlameGraph.of(weighed, WHOLE)) == plainly(expected)


def test_packages_and_files_are_there_once_in_a_row() -> None:
    profile = decode(stacked({"a.f;a.g;b.f;a.g;a.h": 3}))
    by_package = WeighedStacks.of(profile, 0, by="package")
    assert [by_package.names[row] for row in by_package.rows.tolist()] == ["a", "b", "a"]
    by_file = WeighedStacks.of(profile, 0, by="file")
    assert [by_file.names[row] for row in by_file.rows.tolist()] == ["<unknown>"]
    by_line = WeighedStacks.of(profile, 0, by="line")
    assert [by_line.names[row] for row in by_line.rows.tolist()][:2] == ["a.f :2", "a.g :2"]


@pytest.mark.parametrize(("by", "is_collapsed"), COLLAPSING)
def test_each_grouping_adds_up_to_its_table(by: Grouping, is_collapsed: bool, profiles: Path) -> None:
    merged = merge([decode(profile) for profile in read(profiles, "etl-*")])
    graph = FlameGraph.of(WeighedStacks.of(merged, 1, by=by, is_collapsed=is_collapsed), WHOLE)
    flat: Counter[str] = Counter()
    for name, own in zip(graph.names, graph.own[:, 0].tolist(), strict=True):
        flat[name] += own
    table = usage_by_name(TopTable.of(merged, by).only(1))
    assert +flat == Counter({name: usage.flat for name, usage in table.items() if usage.flat})


@given(STACKS)
def test_the_calls_around_a_name_are_those_above_and_below_its_first_call(stacks: dict[str, int]) -> None:
    for name in ("a", "Main"):
        above: Counter[Chain] = Counter()
        below: Counter[Chain] = Counter()
        for stack, count in stacks.items():
            names = tuple(stack.split(";"))
            if name in names:
                at = names.index(name)
                above[names[at::-1]] += count
                below[names[at:]] += count
        for found, expected in zip(stacks_of(stacks).around(name), (above, below), strict=True):
            parts: Counter[Chain] = Counter()
            for begin, end, value in zip(found.offsets, found.offsets[1:], found.values[:, 0], strict=False):
                parts[tuple(found.names[row] for row in found.rows[begin:end])] += int(value)
            assert parts == expected
