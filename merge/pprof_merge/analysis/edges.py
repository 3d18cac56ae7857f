"""Edges: the loops that find the calls which Go's compiler takes from a profile; mypyc compiles this module.

The source is `cmd/internal/pgo/pprof.go` and `internal/profile/graph.go` in Go; before Go 1.23 the same code
was in `cmd/compile/internal/pgo`. Only the two leaf locations of a sample count. Each of their lines, inlined
calls included, is a node; each step from one node to another is an edge, counted once a sample.
"""

from __future__ import annotations

from typing import final

from librt.vecs import vec
from mypy_extensions import i64

from pprof_merge.columns.tables import Table
from pprof_merge.columns.vectors import room, wrapped, zeros
from pprof_merge.profile.columns import ProfileColumns


@final
class Edges:
    """The call edges of a profile: first `read_nodes` and `read_calls`, then `keep_nodes` and `find`.

    Nodes, (n_nodes): a line of a function at an address.

    - `name`: the rank of the function's name in `names`, all names in order, with the empty name for a
      location without lines
    - `offset`: the line minus the first line of the function; `has_start_line`: whether that is known

    Calls, (n_calls): distinct pairs of a leaf location and its caller's, or `n_locations` if it has none.

    - `calls`: the pairs; `weight`: the sums of their samples' values, which wrap at 64 bits
    - `call_of_sample` (n_samples): the call of each sample, or `n_calls` for a sample that doesn't count

    Steps, (n_steps), in the order of calls: an edge between two nodes, once a call.

    - `step_ends` (n_calls + 1): where the steps of each call end
    - `edge_of_step`: the edge of each

    Edges, (n_edges), distinct and sorted by caller, offset and callee: `caller` and `callee` are ranks of
    names, `at` is the offset, `sum` the sum of the weights of their steps' calls.
    """

    def __init__(self, profile: ProfileColumns) -> None:
        self.profile: ProfileColumns = profile
        self.names: list[bytes] = []
        self.node_of_frame, self.frame_ends = zeros(0), zeros(1)
        self.n_nodes: i64 = 0
        self.name, self.offset, self.has_start_line = zeros(0), zeros(0), zeros(0)
        self.is_kept: vec[i64] = zeros(0)
        self.calls: Table = Table()
        self.weight, self.call_of_sample = zeros(0), zeros(0)
        self.n_steps: i64 = 0
        self.parent, self.child = zeros(0), zeros(0)
        self.step_ends, self.edge_of_step = zeros(1), zeros(0)
        self.n_edges: i64 = 0
        self.caller, self.at, self.callee, self.sum = zeros(0), zeros(0), zeros(0), zeros(0)

    def read_nodes(self) -> None:
        """Number the names and the nodes."""
        profile = self.profile
        functions, locations, lines = profile.functions, profile.locations, profile.lines
        texts = [profile.strings[functions[5 * row + 1]] for row in range(profile.n_functions)]
        texts.append(b"")
        self.names = names = sorted(dict.fromkeys(texts))
        rank_of = dict(zip(names, range(len(names)), strict=True))
        ranks = zeros(i64(len(texts)))
        for row in range(i64(len(texts))):
            ranks[row] = rank_of[texts[row]]
        n: i64 = profile.n_locations
        nodes, words = Table(), zeros(4)
        self.node_of_frame, self.frame_ends = zeros(profile.n_lines + n), zeros(n + 2)
        nodes.make_room(profile.n_lines + n, 4 * (profile.n_lines + n))
        frame: i64 = 0
        begin: i64 = 0
        for location in range(n):
            end: i64 = locations[5 * location + 3]
            words[1] = locations[5 * location + 2]
            for i in range(begin, end):
                function: i64 = lines[3 * i]
                words[0], words[2], words[3] = ranks[function], functions[5 * function + 4], lines[3 * i + 1]
                self.node_of_frame[frame] = nodes.known(words, 0, 4)
                frame += 1
            if begin == end:  # line 0 of no function
                words[0], words[2], words[3] = ranks[profile.n_functions], 0, 0
                self.node_of_frame[frame] = nodes.known(words, 0, 4)
                frame += 1
            self.frame_ends[location + 1] = frame
            begin = end
        self.frame_ends[n + 1] = frame  # the caller of a stack of one location has no frames
        self.n_nodes = nodes.count
        self.name, self.offset, self.has_start_line = (
            zeros(nodes.count),
            zeros(nodes.count),
            zeros(nodes.count),
        )
        for node in range(nodes.count):
            start_line: i64 = nodes.words[4 * node + 2]
            self.name[node] = nodes.words[4 * node]
            self.offset[node] = wrapped(nodes.words[4 * node + 3] - start_line)
            self.has_start_line[node] = i64(1) if start_line != 0 else i64(0)

    def read_calls(self, column: i64) -> i64:
        """Find the calls of all samples with a location and a value other than 0 in a column.

        Returns how many nodes they have together.
        """
        profile, calls, words = self.profile, self.calls, zeros(2)
        n: i64 = profile.n_samples
        numbers, frame_ends = zeros(n), self.frame_ends
        n_nodes: i64 = 0
        for row in range(n):
            numbers[row] = -1
            first: i64 = profile.frame_ends[row]
            depth: i64 = profile.frame_ends[row + 1] - first
            value: i64 = profile.values[row * profile.n_types + column]
            if depth > 0 and value != 0:
                words[0] = i64(profile.frames[first])
                words[1] = i64(profile.frames[first + 1]) if depth > 1 else profile.n_locations
                calls.make_room(1, 2)
                n_calls: i64 = calls.count
                call: i64 = calls.known(words, 0, 2)
                if call == n_calls:
                    self.weight = room(self.weight, call + 1)
                    n_nodes += frame_ends[words[0] + 1] - frame_ends[words[0]]
                    n_nodes += frame_ends[words[1] + 1] - frame_ends[words[1]]
                self.weight[call] = wrapped(self.weight[call] + value)
                numbers[row] = call
        for row in range(n):
            if numbers[row] < 0:
                numbers[row] = calls.count
        self.call_of_sample = numbers
        return n_nodes

    def nodes_of(self, call: i64, nodes: vec[i64]) -> i64:
        """Set `nodes` to the nodes of a call, the innermost first; return how many there are."""
        n: i64 = 0
        for k in range(2 * call, 2 * call + 2):
            location: i64 = self.calls.words[k]
            for frame in range(self.frame_ends[location], self.frame_ends[location + 1]):
                nodes[n] = self.node_of_frame[frame]
                n += 1
        return n

    def most_nodes(self) -> i64:
        """Return a number of nodes that no call exceeds."""
        most: i64 = 0
        for location in range(self.profile.n_locations):
            most = max(most, self.frame_ends[location + 1] - self.frame_ends[location])
        return 2 * most

    def keep_nodes(self) -> bool:
        """Find the nodes that the graph keeps: those whose cumulative or flat sum is not 0.

        Returns False if some are kept, and none of them has a start line.
        """
        nodes, weight = zeros(self.most_nodes()), self.weight
        cumulative, flat, last_call = zeros(self.n_nodes), zeros(self.n_nodes), zeros(self.n_nodes)
        for call in range(self.calls.count):
            n: i64 = self.nodes_of(call, nodes)
            flat[nodes[0]] = wrapped(flat[nodes[0]] + weight[call])
            for i in range(n):
                node: i64 = nodes[i]
                if last_call[node] != call + 1:  # once a call
                    last_call[node] = call + 1
                    cumulative[node] = wrapped(cumulative[node] + weight[call])
        n_kept: i64 = 0
        n_started: i64 = 0
        self.is_kept = zeros(self.n_nodes)
        for node in range(self.n_nodes):
            if cumulative[node] != 0 or flat[node] != 0:
                self.is_kept[node] = 1
                n_kept += 1
                n_started += self.has_start_line[node]
        return n_kept == 0 or n_started > 0

    def find(self) -> None:
        """Find the edges."""
        self.find_steps()
        n: i64 = self.n_steps
        name, parent, child = self.name, self.parent, self.child
        ranks = self.offset_ranks()
        # Sorted by the least significant key first; each sorting keeps the order of equal keys.
        order, keys = zeros(n), zeros(n)
        for i in range(n):
            order[i] = i
            keys[i] = name[child[i]]
        n_names: i64 = i64(len(self.names))
        order = sorted_by(keys, order, n_names)
        for i in range(n):
            keys[i] = ranks[parent[i]]
        order = sorted_by(keys, order, self.n_nodes)
        for i in range(n):
            keys[i] = name[parent[i]]
        order = sorted_by(keys, order, n_names)
        self.edge_of_step = keys
        step: i64 = 0
        step_calls = self.step_calls()
        self.n_edges = 0
        for i in range(n):
            step = order[i]
            caller: i64 = name[parent[step]]
            at: i64 = self.offset[parent[step]]
            callee: i64 = name[child[step]]
            edge: i64 = self.n_edges - 1
            if edge < 0 or self.caller[edge] != caller or self.at[edge] != at or self.callee[edge] != callee:
                edge += 1
                self.n_edges = edge + 1
                if edge >= len(self.caller):
                    self.caller, self.at = room(self.caller, edge + 1), room(self.at, edge + 1)
                    self.callee, self.sum = room(self.callee, edge + 1), room(self.sum, edge + 1)
                self.caller[edge], self.at[edge], self.callee[edge] = caller, at, callee
            self.sum[edge] = wrapped(self.sum[edge] + self.weight[step_calls[step]])
            self.edge_of_step[step] = edge

    def find_steps(self) -> None:
        """Find the steps from a kept node to another node, once a call."""
        most: i64 = self.most_nodes()
        nodes, before = zeros(most), zeros(most)
        # For each node 1 + where it was last in the call with the number of `last_call` - 1. `before` has
        # the same for the time before that.
        last_at, last_call = zeros(self.n_nodes), zeros(self.n_nodes)
        self.step_ends = zeros(self.calls.count + 1)
        n_steps: i64 = 0
        for call in range(self.calls.count):
            n: i64 = self.nodes_of(call, nodes)
            if n_steps + n > len(self.parent):
                self.parent, self.child = room(self.parent, n_steps + n), room(self.child, n_steps + n)
            for i in range(n - 1):
                child: i64 = nodes[i]
                parent: i64 = nodes[i + 1]
                at: i64 = last_at[child] if last_call[child] == call + 1 else i64(0)
                before[i] = at
                last_at[child], last_call[child] = i + 1, call + 1
                if child == parent or self.is_kept[parent] == 0:
                    continue
                while at > 0 and nodes[at] != parent:  # nodes[at - 1] is the child
                    at = before[at - 1]
                if at == 0:
                    self.parent[n_steps], self.child[n_steps] = parent, child
                    n_steps += 1
            self.step_ends[call + 1] = n_steps
        self.n_steps = n_steps

    def step_calls(self) -> vec[i64]:
        """Return the call of each step."""
        calls = zeros(self.n_steps)
        for call in range(self.calls.count):
            for step in range(self.step_ends[call], self.step_ends[call + 1]):
                calls[step] = call
        return calls

    def offset_ranks(self) -> vec[i64]:
        """Return the rank of each node's offset among all offsets."""
        distinct = sorted({int(self.offset[node]): None for node in range(self.n_nodes)})
        rank_of = dict(zip(distinct, range(len(distinct)), strict=True))
        ranks = zeros(self.n_nodes)
        for node in range(self.n_nodes):
            ranks[node] = rank_of[int(self.offset[node])]
        return ranks


def sorted_by(keys: vec[i64], order: vec[i64], n_keys: i64) -> vec[i64]:
    """Return the order sorted by keys[order[i]], which are below `n_keys`; equal ones stay as they are."""
    begins = zeros(n_keys + 1)
    n: i64 = i64(len(order))
    for i in range(n):
        begins[keys[i] + 1] += 1
    for key in range(n_keys):
        begins[key + 1] += begins[key]
    found = zeros(n)
    for i in range(n):
        key_: i64 = keys[order[i]]
        found[begins[key_]] = order[i]
        begins[key_] += 1
    return found
