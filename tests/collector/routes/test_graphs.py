"""Flame graphs in other forms than bars: Pyroscope's tree, a graph for Graphviz, and two selections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pgo_collector.routes.pyroscope import querier_pb2 as messages
from pprof_proto.profile_pb2 import Profile

from tests.collector.edits import edited
from tests.collector.pushing import refused
from tests.collector.querying import CPU, SAMPLES, call, post
from tests.faults.stacks import profile_of
from tests.server import Server, bearer

pytestmark = pytest.mark.any_store

MS = 10**6
STACKS = {("main", "a", "b"): 30, ("main", "a", "a", "b"): 10, ("main", "c"): 5, ('q"\\\nq',): 2}


def profile_with(stacks: dict[tuple[str, ...], int]) -> bytes:
    """Return a profile with stacks, the root first, and their ms."""

    def edit(profile: Profile) -> None:
        del profile.sample[:], profile.location[:], profile.function[:]
        ids: dict[str, int] = {}
        for stack, ms in stacks.items():
            for name in stack:
                if name not in ids:
                    ids[name] = len(ids) + 1
                    profile.string_table.append(name.encode())
                    text = len(profile.string_table) - 1
                    profile.function.add(id=ids[name], name=text, system_name=text, start_line=1)
                    profile.location.add(id=ids[name]).line.add(function_id=ids[name], line=2)
            profile.sample.add(location_id=[ids[name] for name in reversed(stack)], value=[ms, ms * MS])

    return edited(profile_of("x"), edit)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("filled")) as server:
        other = {("main", "a", "b"): 20, ("main", "d"): 7}
        for service, stacks in {"shop": STACKS, "next": other}.items():
            answer = server.submit(profile_with(stacks), query={"service": service})
            assert answer.status_code == 204, answer.text
        yield server


def stacktraces(server: Server, service: str, **fields: Any) -> messages.SelectMergeStacktracesResponse:
    selector = f'{{service_name="{service}"}}'
    fields = {"profile_typeID": CPU, "label_selector": selector, **fields}
    return call(server, "SelectMergeStacktraces", messages.SelectMergeStacktracesResponse, **fields)


def nodes_in(tree: bytes) -> dict[tuple[str, ...], int]:
    """Return the own value of each chain of names, read as Pyroscope reads its trees."""
    at = 0

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte = tree[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    found: dict[tuple[str, ...], int] = {}
    callers: list[tuple[str, ...]] = [()]
    while callers:
        caller = callers.pop()
        length = varint()
        chain = (*caller, tree[at : at + length].decode())
        at += length
        assert chain not in found
        found[chain] = varint()
        callers += [chain] * varint()
    assert at == len(tree)
    return found


def test_a_tree_has_the_own_value_of_each_chain_of_calls(filled: Server) -> None:
    tree = stacktraces(filled, "shop", format="PROFILE_FORMAT_TREE").tree
    inner = {("",), ("", "main"), ("", "main", "a"), ("", "main", "a", "a")}
    own = {("", *stack): ms * MS for stack, ms in STACKS.items()}
    assert nodes_in(tree) == {**dict.fromkeys(inner, 0), **own}


def test_small_calls_of_a_tree_are_in_other(filled: Server) -> None:
    tree = stacktraces(filled, "shop", format="PROFILE_FORMAT_TREE", max_nodes=2).tree
    assert nodes_in(tree) == {
        ("",): 0,
        ("", "other"): 2 * MS,
        ("", "main"): 0,
        ("", "main", "other"): 5 * MS,
        ("", "main", "a"): 0,
        ("", "main", "a", "other"): 40 * MS,
    }


def test_stacks_without_frames_are_in_other(filled: Server) -> None:
    assert filled.submit(profile_with({("a",): 3, (): 4}), query={"service": "bare"}).status_code == 204
    tree = stacktraces(filled, "bare", format="PROFILE_FORMAT_TREE").tree
    assert nodes_in(tree) == {("",): 0, ("", "a"): 3 * MS, ("", "other"): 4 * MS}


def test_nothing_found_is_no_tree_and_no_graph(filled: Server) -> None:
    for format_ in ("PROFILE_FORMAT_TREE", "PROFILE_FORMAT_DOT"):
        assert stacktraces(filled, "absent", format=format_) == messages.SelectMergeStacktracesResponse()
    answer = render(filled, query=f'{CPU}{{service_name="absent"}}')
    assert (answer.status_code, answer.text) == (200, "")


def render(server: Server, **query: str) -> httpx.Response:
    query = {"query": f'{CPU}{{service_name="shop"}}', "format": "dot", **query}
    return server.client.get("/pyroscope/render", params=query, headers=bearer(server.merge_key))


def graph_in(dot: str) -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """Return the labels of functions and calls, by the functions' names."""
    names, nodes, calls = {}, {}, {}
    for id_, label in re.findall(r'^  (N\d+) \[label="(.*)"\];$', dot, re.MULTILINE):
        names[id_], own, of = label.rsplit("\\n", 2)
        nodes[names[id_]] = f"{own}, {of}"
    for caller, callee, label in re.findall(r"^  (N\d+) -> (N\d+) \[label=(.*)\];$", dot, re.MULTILINE):
        calls[names[caller], names[callee]] = label
    return nodes, calls


def test_a_graph_of_calls_counts_each_stack_once(filled: Server) -> None:
    answer = render(filled)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
    assert answer.text.startswith("digraph calls {")
    assert answer.text == stacktraces(filled, "shop", format="PROFILE_FORMAT_DOT").dot
    nodes, calls = graph_in(answer.text)
    assert nodes["a"] == "own 0 nanoseconds (0.00%), of 40,000,000 nanoseconds (85.11%)"
    assert nodes["b"] == "own 40,000,000 nanoseconds (85.11%), of 40,000,000 nanoseconds (85.11%)"
    assert nodes.keys() == {"main", "a", "b", "c", 'q\\"\\\\\\\\nq'}
    ms = {call: int(label.strip('"').split()[0].replace(",", "")) // MS for call, label in calls.items()}
    assert ms == {("main", "a"): 40, ("a", "a"): 10, ("a", "b"): 40, ("main", "c"): 5}


def test_a_call_over_functions_that_are_left_out_is_dotted(filled: Server) -> None:
    nodes, calls = graph_in(render(filled, **{"max-nodes": "2"}).text)
    assert nodes.keys() == {"main", "a"}
    assert not any("dotted" in label for label in calls.values())
    selector = '{service_name="deep"}'
    deep = {("main", "small", "leaf"): 1, ("other", "leaf"): 8, ("main",): 8}
    assert filled.submit(profile_with(deep), query={"service": "deep"}).status_code == 204
    nodes, calls = graph_in(render(filled, query=CPU + selector, **{"max-nodes": "2"}).text)
    assert nodes.keys() == {"main", "leaf"}
    assert ["dotted" in label for label in calls.values()] == [True]
    assert "the limit is 16,384" in refused(
        render(filled, **{"max-nodes": "999999999"}), 400, "invalid_argument"
    )


def side(service: str, **fields: Any) -> messages.SelectMergeStacktracesRequest:
    selector = f'{{service_name="{service}"}}'
    return messages.SelectMergeStacktracesRequest(
        **{"profile_typeID": CPU, "label_selector": selector, **fields}
    )


def test_a_diff_is_that_of_render_diff(filled: Server) -> None:
    found = call(
        filled, "Diff", messages.DiffResponse, left=side("shop"), right=side("next", max_nodes=100)
    ).flamegraph
    query = {f"{of}Query": f'{CPU}{{service_name="{name}"}}' for of, name in
             (("left", "shop"), ("right", "next"))}  # fmt: skip
    rendered = filled.client.get(
        "/pyroscope/render-diff", params=query, headers=bearer(filled.merge_key)
    ).json()
    assert rendered["flamebearer"] == {
        "names": [*found.names],
        "levels": [[*level.values] for level in found.levels],
        "numTicks": found.total,
        "maxSelf": found.max_self,
    }
    assert (found.leftTicks, found.rightTicks, found.total) == (47 * MS, 27 * MS, 74 * MS)
    nothing = call(filled, "Diff", messages.DiffResponse, left=side("absent"), right=side("absent"))
    assert not nothing.HasField("flamegraph")


@pytest.mark.parametrize(
    ("sides", "why"),
    [
        ({}, "name:type:unit"),
        ({"left": side("shop")}, "name:type:unit"),
        ({"left": side("shop"), "right": side("shop", profile_typeID=SAMPLES)}, "the profile type of left"),
        ({"left": side("shop"), "right": side("shop", max_nodes=1 << 40)}, "the limit is 16,384"),
        ({"left": side("shop", span_selector=["1"]), "right": side("shop")}, "span_selector='1': not an id"),
    ],
)
def test_a_diff_that_cannot_be_made_is_refused(filled: Server, sides: dict[str, Any], why: str) -> None:
    body = messages.DiffRequest(**sides).SerializeToString()
    assert why in refused(post(filled, "Diff", body), 400, "invalid_argument")
