"""Flame graphs in the forms that aren't bars: Pyroscope's tree, and the graph of calls for Graphviz."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterator

from pprof_merge.analysis import FlameGraph

from pgo_collector.queries.grafana.profile_types import ProfileType
from pgo_collector.routes.push.connect import written
from pgo_collector.routes.pyroscope.flamebearer import OTHER, callees_in
from pgo_collector.routes.pyroscope.querier_pb2 import SelectMergeStacktracesResponse
from pgo_collector.traces.texts import printable, quoted

# The functions of a graph of calls if a client names no number, as Pyroscope has them.
USUAL_FUNCTIONS = 100
_MORE, _SEVEN_BITS = 0x80, 0x7F


def tree_message(as_json: bool, graph: FlameGraph) -> bytes:
    """Return the answer with a flame graph as a tree; without one if its total is 0."""
    return written(SelectMergeStacktracesResponse(tree=tree_of(graph)), as_json)


def dot_message(as_json: bool, measured: ProfileType, graph: FlameGraph) -> bytes:
    """Return the answer with the calls of a flame graph for Graphviz; without them if its total is 0."""
    dot = dot_of(measured, USUAL_FUNCTIONS, graph).decode()
    return written(SelectMergeStacktracesResponse(dot=dot), as_json)


def tree_of(graph: FlameGraph) -> bytes:
    """Return a flame graph in Pyroscope's form of a tree; nothing if its total is 0.

    Each node is the length of its name, the name, its own value and the number of its callees, which follow
    it with all that they call. The first node has no name, and Pyroscope reads no value of it: stacks without
    frames are in `other`.
    """
    own, total = graph.own_size[:, 0].tolist(), graph.size[:, 0].tolist()
    own[0] = 0
    called = callees_in(graph)
    tree = bytearray()
    nodes = [0] if total[0] else []
    while nodes:
        node = nodes.pop()
        callees = called[node]
        # What isn't the node's own, nor that of nodes in the graph, is that of the nodes left out.
        rest = total[node] - own[node] - sum(total[callee] for callee in callees)
        _add_node(tree, graph.names[node] if node else "", own[node], len(callees) + (rest != 0))
        if rest:
            _add_node(tree, OTHER, rest, 0)
        nodes += callees
    return bytes(tree)


def _add_node(tree: bytearray, name: str, own: int, callees: int) -> None:
    encoded = name.encode(errors="replace")
    _add_varint(tree, len(encoded))
    tree += encoded
    _add_varint(tree, own)
    _add_varint(tree, callees)


def _add_varint(tree: bytearray, number: int) -> None:
    while number > _SEVEN_BITS:
        tree.append(number & _SEVEN_BITS | _MORE)
        number >>= 7
    tree.append(number)


def dot_of(measured: ProfileType, most: int, graph: FlameGraph) -> bytes:
    """Return the `most` largest functions of a flame graph and their calls for Graphviz; nothing if all is 0.

    A function that calls itself, by others or not, counts once in a stack, and so does a call. A dotted call
    leads over functions that aren't in the graph.
    """
    whole = int(graph.size[0, 0])
    if not whole:
        return b""
    called = callees_in(graph)
    flat, cum = _functions(graph, called)
    largest = sorted(cum, key=lambda name: (-cum[name], name))[:most]
    numbers = {name: number for number, name in enumerate(largest, 1)}
    calls, direct = _calls(graph, called, numbers)

    def amount(value: int) -> str:
        return f"{value:,} {printable(measured.sample_unit)} ({100 * value / whole:.2f}%)"

    lines = ["digraph calls {", "  node [shape=box];", f"  label={quoted(amount(whole))};"]
    for name, number in numbers.items():
        label = f"{printable(name)}\nown {amount(flat[name])}\nof {amount(cum[name])}"
        lines.append(f"  N{number} [label={quoted(label)}];")
    for (caller, callee), value in calls.most_common():
        style = "" if (caller, callee) in direct else ", style=dotted"
        label = quoted(amount(value))
        lines.append(f"  N{numbers[caller]} -> N{numbers[callee]} [label={label}{style}];")
    return "\n".join([*lines, "}", ""]).encode()


def _functions(graph: FlameGraph, called: defaultdict[int, list[int]]) -> tuple[Counter[str], Counter[str]]:
    """Return the own value of each function, and the value of all stacks that it is in."""
    own, total = graph.own_size[:, 0].tolist(), graph.size[:, 0].tolist()
    flat, cum, above = Counter[str](), Counter[str](), Counter[str]()
    for node, enters in _walk(called):
        name = graph.names[node]
        if enters:
            flat[name] += own[node]
            cum[name] += 0 if above[name] else total[node]
        above[name] += 1 if enters else -1
    return flat, cum


def _calls(
    graph: FlameGraph, called: defaultdict[int, list[int]], kept: Container[str]
) -> tuple[Counter[tuple[str, str]], set[tuple[str, str]]]:
    """Return the value of each call between the functions that are kept, and which calls are direct."""
    total, parent = graph.size[:, 0].tolist(), graph.parent.tolist()
    calls, above = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    direct: set[tuple[str, str]] = set()
    callers: list[str] = []
    for node, enters in _walk(called):
        name = graph.names[node]
        if name not in kept:
            continue
        if not enters:
            callers.pop()
        if callers:
            call = (callers[-1], name)
            if enters:
                calls[call] += 0 if above[call] else total[node]
                if graph.names[parent[node]] == callers[-1]:
                    direct.add(call)
            above[call] += 1 if enters else -1
        if enters:
            callers.append(name)
    return calls, direct


def _walk(called: defaultdict[int, list[int]]) -> Iterator[tuple[int, bool]]:
    """Yield each node but the first twice: before its callees with True, after them with False."""
    steps = [*called[0]]
    while steps:
        node = steps.pop()
        yield (node, True) if node >= 0 else (~node, False)
        if node >= 0:
            steps += (~node, *called[node])
