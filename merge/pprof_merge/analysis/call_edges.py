"""Call edges: all that Go's compiler takes from a profile, computed as the compiler computes them.

Follows `cmd/internal/pgo/pprof.go` and `internal/profile/graph.go` in Go's source; before Go 1.23 the same
code was in `cmd/compile/internal/pgo`. A sample counts for its two leaf locations only. Their lines, inlined
ones too, are nodes, and every step from one node to another is an edge, once a sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.columns.ragged import offsets_of, take_rows
from pprof_merge.errors import UnfitForFormat
from pprof_merge.merging.headers import PGO_SAMPLE_TYPES
from pprof_merge.profile import Bools, Header, Int64s, Profile, Samples

# Rows of several columns are sorted as one number each, where it has no more than 63 bits.
_MOST_KEYS = 1 << 63
# What the nodes of a pair of locations take on the way to their edges, a third of it in each of the arrays
# that are there at once; and each edge of a sample.
_NODE_BYTES = 40
_EDGE_BYTES = 16
ADVICE = "select fewer profiles: calls that are inlined in one another hundredfold make too many edges"


@dataclass(frozen=True, slots=True, eq=False)
class CallEdges:
    """One row an edge, each once, sorted by caller, offset and callee.

    `caller` and `callee` are rows of `names`, which are sorted, distinct and all used. `offset` is the line
    of the call less the first line of the caller; `weight` is the sum of the samples, wrapping at 64 bits.
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
    """Edges, and the samples that they come from: `edge` is ragged by `offsets` (n_samples + 1).

    An edge is as often in a sample's row as the sample's value is added to it.
    """

    edges: CallEdges
    edge: Int64s
    offsets: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """One row a node of Go's call graph: a line of a function at an address. `name` is a rank among names."""

    name: Int64s
    offset: Int64s
    has_start_line: Bools

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True, slots=True, eq=False)
class _Calls:
    """Distinct pairs of a leaf location and its caller's, as the nodes in them, the innermost first.

    `node` is flat, and `call` says to which pair each belongs; `weight` (n_calls) is the sum of its samples.
    `of_sample` (n_samples) is the pair of each sample, n_calls where it doesn't count.
    """

    node: Int64s
    call: Int64s
    weight: Int64s
    of_sample: Int64s


def weighing_column(header: Header) -> int:
    """The column of values that the compiler takes. Raises UnfitForFormat where it would take none."""
    for column, sample_type in enumerate(header.sample_types):
        if sample_type in PGO_SAMPLE_TYPES:
            return column
    wanted, found = (" or ".join(map(str, types)) for types in (PGO_SAMPLE_TYPES, header.sample_types))
    raise UnfitForFormat(f"Go's compiler needs samples in {wanted}; these are in {found or 'nothing'}")


def call_edges(profile: Profile, budget: Budget = UNBOUNDED) -> CallEdges:
    """The edges; where there are none, or their weights add up to 0, the compiler ignores the profile.

    Raises UnfitForFormat where the compiler fails: no sample type that it takes, or no `start_line` at all;
    and OutputTooLarge where there are too many to be made within the budget.
    """
    edges, *_ = _edges(profile, budget)
    return edges


def traced_edges(profile: Profile, budget: Budget = UNBOUNDED) -> TracedEdges:
    """The edges as `call_edges` has them, and the samples of each. Raises as it does."""
    edges, calls, call, edge = _edges(profile, budget)
    n_edges = np.bincount(call, minlength=len(calls.weight) + 1)
    budget.check_rows(int(n_edges[calls.of_sample].sum()), _EDGE_BYTES, ADVICE)
    call_offsets = offsets_of(n_edges)
    index, offsets = take_rows(call_offsets, calls.of_sample)
    return TracedEdges(edges, edge[index], offsets)


def _edges(profile: Profile, budget: Budget) -> tuple[CallEdges, _Calls, Int64s, Int64s]:
    """The edges, the calls, and both for each time that a call has an edge, in the order of calls."""
    values = profile.samples.values[:, weighing_column(profile.header)]
    names, name_of_function = _names(profile)
    nodes, node_of_frame, frame_offsets = _nodes(profile, name_of_function)
    calls = _calls(profile.samples, values, node_of_frame, frame_offsets, budget)
    kept = _kept(calls, len(nodes))
    if kept.any() and not nodes.has_start_line[kept].any():
        raise UnfitForFormat("no function has a start line; programs built with Go 1.20 or later write them")
    call, parent, child = _steps(calls, len(nodes))
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
        weight=sums(edge, calls.weight[call], len(first)),
    )
    return edges, calls, call, edge


def sums(groups: Int64s, values: Int64s, n_groups: int) -> Int64s:
    """The sum of the values of each group (n_groups): exact, and wrapping at 64 bits as Go's."""
    total = np.zeros(n_groups, np.int64)
    np.add.at(total, groups, values)
    return total


def _names(profile: Profile) -> tuple[list[bytes], Int64s]:
    """Names, sorted and distinct, and that of each function; after the last comes no function's: empty."""
    texts = [*(profile.strings[row] for row in profile.functions.name.tolist()), b""]
    names = sorted(set(texts))
    ranks = dict(zip(names, range(len(names)), strict=True))
    return names, np.array([ranks[text] for text in texts], np.int64)


def _nodes(profile: Profile, name_of_function: Int64s) -> tuple[_Nodes, Int64s, Int64s]:
    """The nodes, that of each frame, and the offsets (n_locations + 1) of the frames of each location.

    A frame is a line; a location without lines has one too, of line 0 in no function.
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
    """The two leaf locations of all samples that have a location and a value."""
    depth = np.diff(samples.location_offsets)
    counted = (depth > 0) & (values != 0)
    leaf_at, has_caller = samples.location_offsets[:-1][counted], depth[counted] > 1
    leaf = samples.locations[leaf_at].astype(np.int64)  # a pair of them takes more than 32 bits
    # Where there is no caller, one location more stands in, which has no frame.
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
    return _Calls(node_of_frame[frames], call, sums(pair, values[counted], len(pairs)), of_sample)


def _kept(calls: _Calls, n_nodes: int) -> Bools:
    """Which nodes the graph keeps: those with a sum, over all samples that they are in or are the leaf of."""
    once = _sorted_distinct(calls.call * n_nodes + calls.node)
    cumulative = sums(once % n_nodes, calls.weight[once // n_nodes], n_nodes)
    is_leaf = np.diff(calls.call, prepend=-1) != 0
    flat = sums(calls.node[is_leaf], calls.weight, n_nodes)
    kept: Bools = (cumulative != 0) | (flat != 0)
    return kept


def _steps(calls: _Calls, n_nodes: int) -> tuple[Int64s, Int64s, Int64s]:
    """Each step from a node to another, once a call, in the order of calls: call, parent and child."""
    child, parent = calls.node[:-1], calls.node[1:]
    is_step = (np.diff(calls.call) == 0) & (child != parent)
    pairs, pair = np.unique((parent * n_nodes + child)[is_step], return_inverse=True)
    once = _sorted_distinct(calls.call[:-1][is_step] * len(pairs) + pair)
    call, step = np.divmod(once, len(pairs))
    return call, pairs[step] // n_nodes, pairs[step] % n_nodes


def _sorted_distinct(numbers: Int64s) -> Int64s:
    """As np.unique for numbers from 0, at a quarter of the time that its hash table takes for as many."""
    ordered = np.sort(numbers)
    distinct: Int64s = ordered[np.diff(ordered, prepend=-1) != 0]
    return distinct


def _distinct(columns: tuple[Int64s, ...]) -> tuple[Int64s, Int64s]:
    """Numbers for rows, in the order of the columns, one for equal rows; and a row of each number."""
    keys, n_keys = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        lowest = int(column.min(initial=0))
        digits, n_digits = column - lowest, int(column.max(initial=0)) - lowest + 1
        if n_keys * n_digits >= _MOST_KEYS:
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
    """The rank of each number among the distinct ones, and how many there are."""
    values, ranks = np.unique(column, return_inverse=True)
    return ranks, len(values)
