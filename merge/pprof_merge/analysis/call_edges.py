"""Call edges: everything that Go's compiler takes from a profile, computed as the compiler computes it.

The source is `cmd/internal/pgo/pprof.go` and `internal/profile/graph.go` in Go; before Go 1.23 the same code
was in `cmd/compile/internal/pgo`. Only the two leaf locations of a sample count. Each of their lines, inlined
calls included, is a node; each step from one node to another is an edge, counted once a sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.columns.ragged import offsets_of, take_rows
from pprof_merge.errors import UnfitForFormat
from pprof_merge.merging.headers import PGO_SAMPLE_TYPES
from pprof_merge.profile import Bools, Header, Int64s, Profile, Samples

# Rows of several columns are sorted by one combined number, as long as it fits into 63 bits.
_MAX_KEYS = 1 << 63
# Memory, in bytes, that one node of a pair of locations takes while its edges are computed: about three
# arrays exist at once, each with a third of it. The second figure is that of one edge of a sample.
_NODE_BYTES = 40
_EDGE_BYTES = 16
ADVICE = "select fewer profiles: calls inlined into each other hundreds deep make too many edges"


@dataclass(frozen=True, slots=True, eq=False)
class CallEdges:
    """Distinct call edges, one a row, sorted by caller, offset and callee.

    `caller` and `callee` (n_edges) are rows of `names`, which are sorted, distinct and all in use. `offset`
    is the line of the call minus the first line of the caller. `weight` is the sum of the samples' values; it
    wraps at 64 bits.
    """

    names: list[bytes]
    caller: Int64s
    offset: Int64s
    callee: Int64s
    weight: Int64s

    def __len__(self) -> int:
        return len(self.weight)


@dataclass(frozen=True, slots=True, eq=False)
class TracedEdges:
    """Call edges, and the edges of each sample: `edge` is ragged by `offsets` (n_samples + 1).

    A sample's row repeats an edge as often as the sample's value is added to the edge's weight.
    """

    edges: CallEdges
    edge: Int64s
    offsets: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """Nodes of Go's call graph, one a row: a line of a function at an address. `name` is a name's rank."""

    name: Int64s
    offset: Int64s
    has_start_line: Bools

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True, slots=True, eq=False)
class _Calls:
    """Distinct pairs of a leaf location and its caller's location, as the nodes in them, the innermost first.

    `node` and `call` have a row for each node of each pair: `call` is the number of the pair. `weight`
    (n_calls) is the sum of a pair's samples. `of_sample` (n_samples) is the pair of each sample, or n_calls
    for a sample that doesn't count.
    """

    node: Int64s
    call: Int64s
    weight: Int64s
    of_sample: Int64s


def weight_column(header: Header) -> int:
    """Return the column of values that the compiler takes. Raises UnfitForFormat if it takes none of them."""
    for column, sample_type in enumerate(header.sample_types):
        if sample_type in PGO_SAMPLE_TYPES:
            return column
    wanted, found = (" or ".join(map(str, types)) for types in (PGO_SAMPLE_TYPES, header.sample_types))
    raise UnfitForFormat(f"Go's compiler needs samples in {wanted}; these are in {found or 'nothing'}")


def call_edges(profile: Profile, budget: Budget = UNBOUNDED) -> CallEdges:
    """Return the call edges of a profile.

    The compiler ignores a profile that has none, or whose weights add up to 0. Raises UnfitForFormat where
    the compiler fails: no sample type that it takes, or no `start_line` at all. Raises OutputTooLarge if
    computing the edges takes more than the budget.
    """
    edges, *_ = _edges(profile, budget)
    return edges


def traced_edges(profile: Profile, budget: Budget = UNBOUNDED) -> TracedEdges:
    """Return the edges that `call_edges` returns, and those of each sample. Raises as `call_edges` does."""
    edges, calls, call, edge = _edges(profile, budget)
    n_edges = np.bincount(call, minlength=len(calls.weight) + 1)
    budget.check_rows(int(n_edges[calls.of_sample].sum()), _EDGE_BYTES, ADVICE)
    call_offsets = offsets_of(n_edges)
    index, offsets = take_rows(call_offsets, calls.of_sample)
    return TracedEdges(edges, edge[index], offsets)


def _edges(profile: Profile, budget: Budget) -> tuple[CallEdges, _Calls, Int64s, Int64s]:
    """Return the edges, the calls, and the numbers of call and edge of each edge in a call, in call order."""
    values = profile.samples.values[:, weight_column(profile.header)]
    names, name_of_function = _names(profile)
    nodes, node_of_frame, frame_offsets = _nodes(profile, name_of_function)
    calls = _calls(profile.samples, values, node_of_frame, frame_offsets, budget)
    kept = _is_kept(calls, len(nodes))
    if kept.any() and not nodes.has_start_line[kept].any():
        raise UnfitForFormat("no function has a start line; programs built with Go 1.20 or later write them")
    call, parent, child = _node_edges(calls, len(nodes))
    counted = kept[parent]
    call, parent, child = call[counted], parent[counted], child[counted]
    edge, first = _distinct((nodes.name[parent], nodes.offset[parent], nodes.name[child]))
    caller, offset, callee = nodes.name[parent[first]], nodes.offset[parent[first]], nodes.name[child[first]]
    used, row = np.unique(np.concatenate((caller, callee)), return_inverse=True)
    edges = CallEdges(
        names=[names[rank] for rank in used.tolist()],
        caller=row[: len(caller)],
        offset=offset,
        callee=row[len(caller) :],
        weight=sum_groups(edge, calls.weight[call], len(first)),
    )
    return edges, calls, call, edge


def sum_groups(groups: Int64s, values: Int64s, n_groups: int) -> Int64s:
    """Return the sum of the values of each group, (n_groups): exact, wrapping at 64 bits as in Go."""
    total = np.zeros(n_groups, np.int64)
    np.add.at(total, groups, values)
    return total


def _names(profile: Profile) -> tuple[list[bytes], Int64s]:
    """Return the distinct names, sorted, and the rank of each function's name, (n_functions + 1).

    The last rank is that of the empty name, for a frame without a function.
    """
    texts = [*(profile.strings[row] for row in profile.functions.name.tolist()), b""]
    names = sorted(set(texts))
    ranks = dict(zip(names, range(len(names)), strict=True))
    return names, np.array([ranks[text] for text in texts], np.int64)


def _nodes(profile: Profile, name_of_function: Int64s) -> tuple[_Nodes, Int64s, Int64s]:
    """Return the nodes, each frame's node, and the offsets (n_locations + 1) of each location's frames.

    A frame is a line of a location. A location without lines has one frame: line 0 of no function.
    """
    locations, lines = profile.locations, profile.locations.lines
    n_lines = np.diff(lines.offsets)
    n_frames = np.maximum(n_lines, 1)
    is_line = np.repeat(n_lines > 0, n_frames)
    function = np.full(len(is_line), len(profile.functions))
    function[is_line] = lines.function
    line = np.zeros(len(is_line), np.int64)
    line[is_line] = lines.line
    start_line = np.append(profile.functions.start_line, 0)[function]
    name, address = name_of_function[function], np.repeat(locations.address, n_frames)
    node_of_frame, first = _distinct((name, address.view(np.int64), start_line, line))
    nodes = _Nodes(name[first], (line - start_line)[first], start_line[first] != 0)
    return nodes, node_of_frame, offsets_of(n_frames)


def _calls(
    samples: Samples, values: Int64s, node_of_frame: Int64s, frame_offsets: Int64s, budget: Budget
) -> _Calls:
    """Return the pairs of leaf locations of all samples that have a location and a value other than 0.

    Raises OutputTooLarge if their nodes take more than the budget.
    """
    depth = np.diff(samples.location_offsets)
    counted = (depth > 0) & (values != 0)
    leaf_at, has_caller = samples.location_offsets[:-1][counted], depth[counted] > 1
    leaf = samples.locations[leaf_at].astype(np.int64)  # the number of a pair can take more than 32 bits
    # A stack of one location gets an additional location without frames as its caller.
    n_locations = len(frame_offsets) - 1
    caller = np.full(len(leaf), n_locations)
    caller[has_caller] = samples.locations[leaf_at[has_caller] + 1]
    pairs, pair = np.unique(leaf * (n_locations + 1) + caller, return_inverse=True)
    of_sample = np.full(len(samples), len(pairs))
    of_sample[counted] = pair
    locations = np.stack(np.divmod(pairs, n_locations + 1), axis=1).ravel()
    frame_offsets = np.append(frame_offsets, frame_offsets[-1])
    budget.check_rows(int(np.diff(frame_offsets)[locations].sum()), _NODE_BYTES, ADVICE)
    frames, offsets = take_rows(frame_offsets, locations)
    call = np.repeat(np.arange(len(pairs)), np.diff(offsets[::2]))
    return _Calls(node_of_frame[frames], call, sum_groups(pair, values[counted], len(pairs)), of_sample)


def _is_kept(calls: _Calls, n_nodes: int) -> Bools:
    """Return which nodes the graph keeps, (n_nodes): those whose cumulative or flat sum is not 0."""
    once = _sorted_distinct(calls.call * n_nodes + calls.node)
    cumulative = sum_groups(once % n_nodes, calls.weight[once // n_nodes], n_nodes)
    is_leaf = np.diff(calls.call, prepend=-1) != 0
    flat = sum_groups(calls.node[is_leaf], calls.weight, n_nodes)
    kept: Bools = (cumulative != 0) | (flat != 0)
    return kept


def _node_edges(calls: _Calls, n_nodes: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return each edge between two nodes, once a call, in the order of calls: call, parent and child."""
    child, parent = calls.node[:-1], calls.node[1:]
    is_step = (np.diff(calls.call) == 0) & (child != parent)
    pairs, pair = np.unique((parent * n_nodes + child)[is_step], return_inverse=True)
    once = _sorted_distinct(calls.call[:-1][is_step] * len(pairs) + pair)
    call, step = np.divmod(once, len(pairs))
    return call, pairs[step] // n_nodes, pairs[step] % n_nodes


def _sorted_distinct(numbers: Int64s) -> Int64s:
    """Return the distinct numbers, which are 0 or more, sorted.

    Takes a quarter of the time of np.unique, which builds a hash table.
    """
    ordered = np.sort(numbers)
    distinct: Int64s = ordered[np.diff(ordered, prepend=-1) != 0]
    return distinct


def _distinct(columns: tuple[Int64s, ...]) -> tuple[Int64s, Int64s]:
    """Return a number for each row, and one row of each number.

    Equal rows have the same number; numbers are in the order of the rows, compared by column after column.
    """
    keys, n_keys = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        lowest = int(column.min(initial=0))
        digits, n_digits = column - lowest, int(column.max(initial=0)) - lowest + 1
        if n_keys * n_digits >= _MAX_KEYS:
            (keys, n_keys), (digits, n_digits) = _ranks(keys), _ranks(column)
        keys = keys * n_digits + digits
        n_keys *= n_digits
    order = np.argsort(keys)
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = np.diff(keys[order]) != 0
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(is_new) - 1
    return number, order[is_new]


def _ranks(column: Int64s) -> tuple[Int64s, int]:
    """Return the rank of each number among the distinct numbers, and how many distinct numbers there are."""
    values, ranks = np.unique(column, return_inverse=True)
    return ranks, len(values)
