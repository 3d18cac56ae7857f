"""Flame graph: the tree of calls in weighed stacks, from the root down, without calls too small to see.

The tree is built level by level over all stacks at once. The callees of a node that is too small are not
visited, so the cost depends on the nodes in the graph and not on those left out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from pprof_merge.analysis.demangling import name_finder
from pprof_merge.analysis.grouping import function_in
from pprof_merge.analysis.weighed_stacks import WeighedStacks
from pprof_merge.arrays import Bools, Floats, Int32s, Int64s, UInt64s

if TYPE_CHECKING:
    from collections.abc import Sequence

# A graph has no deeper calls: a hostile stack may be millions of calls deep.
MAX_LEVELS = 1000
# Odd numbers that spread the bits of a key; the source is the mixer of splitmix64.
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(31)


@dataclass(frozen=True, slots=True)
class FlameView:
    """The part of a flame graph to show: the calls below the node with the key `root`; 0 is the whole.

    A node is in the graph if its share of the root is at least `least`, and it is one of the `most` largest.
    The values of stacks in which a name contains `search`, in any case, are added up; it may be mangled, or
    be in a mangled name.
    """

    root: int = 0
    least: float = 1 / 1600
    most: int = 1000
    search: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class FlameGraph:
    """A flame graph of n nodes. A node is a chain of calls; callers come before callees.

    The first node is the whole graph: its `parent` (n) is -1 and its key 0. `binaries` (n) are the files that
    the names are in, each empty if it isn't known. `key` (n) identifies a chain of
    names in any graph. `own` (n, n_sides) is the value of the stacks that end at the node, `total` (n,
    n_sides) that of all stacks through it; `own_size` and `size` are the same without the values' signs, as
    the difference of two profiles has them. `weight` (n) is the node's share of the whole by its size, the
    mean over the sides. `root` is the node that the view shows; besides the nodes below it the graph has only
    its callers. `matched` (n_sides) is the value of the stacks below the root in which a name matches the
    search, and `n_matches` the number of these names; `is_match` (n) says whether the node's own name
    matches.
    """

    names: list[str]
    binaries: list[str]
    parent: Int64s
    key: UInt64s
    own: Int64s
    total: Int64s
    own_size: Int64s
    size: Int64s
    weight: Floats
    root: int
    is_match: Bools
    matched: Int64s
    n_matches: int

    @classmethod
    def of(cls, stacks: WeighedStacks, view: FlameView) -> FlameGraph:
        """Return the graph of a view, or of the whole if no node has the key of the view's root."""
        name_keys = _keys_of(stacks.names)
        chain = _chain_of(stacks, view.root, name_keys)
        if chain is None:
            view, chain = replace(view, root=0), np.zeros(0, np.int32)
        builder = _Builder(stacks, view, name_keys)
        builder.add_levels(chain)
        return builder.graph()

    @property
    def depth(self) -> Int64s:
        """Return the number of nodes above each node, (n)."""
        depth = np.zeros(len(self.parent), np.int64)
        for node, parent in enumerate(self.parent.tolist()[1:], 1):
            depth[node] = depth[parent] + 1
        return depth

    def chain(self, node: int) -> list[int]:
        """Return the nodes from the first, which is the whole, to a node."""
        chain = [node]
        while (node := int(self.parent[node])) >= 0:
            chain.append(node)
        return chain[::-1]

    def starts(self) -> Floats:
        """Return where each node begins, as a share of the whole from the left: (n).

        Nodes with the same caller are in order of size, the largest first, then of names. The rest of the
        caller's width is its own value and that of nodes that aren't in the graph.
        """
        starts = np.zeros(len(self.parent), np.float64)
        called: defaultdict[int, list[int]] = defaultdict(list)
        for node, parent in enumerate(self.parent.tolist()):
            called[parent].append(node)
        weight = self.weight.tolist()
        for caller in range(len(starts)):
            start = starts[caller]
            for node in sorted(called[caller], key=lambda node: (-weight[node], self.names[node])):
                starts[node] = start
                start += weight[node]
        return starts


def _chain_of(stacks: WeighedStacks, root: int, name_keys: UInt64s) -> Int32s | None:
    """Return the names from the whole to the node with a key; None if no stack goes through it.

    Keeps only the stacks' keys of one level: all nodes together may be as many as there are frames.
    """
    if root == 0:
        return np.zeros(0, np.int32)
    active = np.arange(len(stacks.values))
    lengths = np.diff(stacks.offsets)
    keys = np.zeros(len(active), np.uint64)
    for depth in range(MAX_LEVELS):
        is_longer = lengths[active] > depth
        active, keys = active[is_longer], keys[is_longer]
        if not len(active):
            break
        keys = _chained(keys, name_keys[stacks.rows[stacks.offsets[active] + depth]])
        found = np.flatnonzero(keys == np.uint64(root))
        if len(found):
            begin = stacks.offsets[active[found[0]]]
            return stacks.rows[begin : begin + depth + 1]
    return None


class _Builder:
    """The nodes of a graph while it is built, level after level."""

    def __init__(self, stacks: WeighedStacks, view: FlameView, name_keys: UInt64s) -> None:
        self._stacks = stacks
        self._view = view
        # For each side the values, and then their sizes if any is negative.
        self._values = stacks.values
        if (stacks.values < 0).any():
            self._values = np.concatenate((stacks.values, stacks.sizes), axis=1)
        self._sides = stacks.values.shape[1]
        self._whole = self._values.sum(axis=0, keepdims=True)
        self._name_keys = name_keys
        # The nodes of each level; then the stacks that reach the current level, and the node of each.
        self._parent = [np.full(1, -1, np.int64)]
        self._name = [np.full(1, -1, np.int64)]
        self._key = [np.zeros(1, np.uint64)]
        self._total = [self._whole]
        self._own = [self._whole.copy()]
        self._active: Int64s = np.arange(len(stacks.values))
        self._node: Int64s = np.zeros(len(stacks.values), np.int64)
        self._count = 1
        self._root = 0
        self._below: Int64s = self._active

    def add_levels(self, chain: Int32s) -> None:
        """Add the levels down to the view's root, by its chain of names, and below it all visible levels."""
        tiny = float(np.finfo(np.float64).tiny)
        least = self._view.least
        lengths = np.diff(self._stacks.offsets)
        for depth in range(MAX_LEVELS):
            is_longer = lengths[self._active] > depth
            self._active, self._node = self._active[is_longer], self._node[is_longer]
            if not len(self._active):
                break
            first = self._count
            self._add_level(depth)
            if depth < len(chain):
                # Above the root, only the stacks through it go on.
                (found,) = np.flatnonzero(self._name[-1] == chain[depth])
                is_next = self._node == first + found
                self._active, self._node = self._active[is_next], self._node[is_next]
                if depth == len(chain) - 1:
                    self._root = first + int(found)
                    self._below = self._active
                    least *= float(self._weights(self._total[-1][found : found + 1])[0])
            else:
                is_seen = (self._weights(self._total[-1]) >= max(least, tiny))[self._node - first]
                self._active, self._node = self._active[is_seen], self._node[is_seen]

    def graph(self) -> FlameGraph:
        """Return the graph, without the nodes that are too small."""
        parent, key = np.concatenate(self._parent), np.concatenate(self._key)
        name, total, own = (np.concatenate(part) for part in (self._name, self._total, self._own))
        weight = self._weights(total)
        kept = self._kept(parent, weight)
        renumbered = np.full(len(parent) + 1, -1, np.int64)  # the index -1 refers to the last: it stays -1
        renumbered[kept] = np.arange(len(kept))
        is_match = self._matching()
        matched, n_matches = self._matched(is_match)
        return FlameGraph(
            names=[self._stacks.names[row] if row >= 0 else "" for row in name[kept].tolist()],
            binaries=[self._stacks.binaries[row] if row >= 0 else "" for row in name[kept].tolist()],
            parent=renumbered[parent[kept]],
            key=key[kept],
            own=own[kept, : self._sides],
            total=total[kept, : self._sides],
            own_size=own[kept, -self._sides :],
            size=total[kept, -self._sides :],
            weight=weight[kept],
            root=int(renumbered[self._root]),
            is_match=np.append(is_match, False)[name[kept]],
            matched=matched,
            n_matches=n_matches,
        )

    def _add_level(self, depth: int) -> None:
        """Add the nodes of the active stacks at this depth."""
        stacks, active = self._stacks, self._active
        first = self._count - len(self._parent[-1])
        name = stacks.rows[stacks.offsets[active] + depth]
        distinct, inverse = np.unique(self._node * len(stacks.names) + name, return_inverse=True)
        parent, name = np.divmod(distinct, len(stacks.names))
        total = np.zeros((len(distinct), self._values.shape[1]), np.int64)
        np.add.at(total, inverse, self._values[active])
        np.subtract.at(self._own[-1], parent - first, total)
        self._parent.append(parent)
        self._name.append(name)
        self._key.append(_chained(self._key[-1][parent - first], self._name_keys[name]))
        self._total.append(total)
        self._own.append(total.copy())
        self._node = self._count + inverse
        self._count += len(distinct)

    def _weights(self, total: Int64s) -> Floats:
        """Return each node's share of the whole, (n_nodes): the mean over the sides whose sum isn't 0."""
        sizes, whole = total[:, -self._sides :], self._whole[:, -self._sides :]
        sides = np.flatnonzero(whole[0])
        if not len(sides):
            return np.zeros(len(total))
        weights: Floats = (sizes[:, sides] / whole[:, sides]).mean(axis=1)
        return weights

    def _kept(self, parent: Int64s, weight: Floats) -> Int64s:
        """Return the nodes to keep, in order: the root, its callers, and the large enough nodes below it."""
        chain = [self._root]
        while (node := int(parent[chain[-1]])) >= 0:
            chain.append(node)
        is_below = np.zeros(len(parent), np.bool_)
        is_below[self._root] = True
        first = 1
        for level in self._parent[1:]:
            last = first + len(level)
            is_below[first:last] |= is_below[level]
            first = last
        is_below[self._root] = False
        least = max(self._view.least * float(weight[self._root]), np.finfo(np.float64).tiny)
        seen = np.flatnonzero(is_below & (weight >= least))
        # A caller comes before its callees and is at least as large: no node is kept without its caller.
        largest = seen[np.argsort(-weight[seen], kind="stable")[: self._view.most]]
        return np.sort(np.concatenate((np.array(chain, np.int64), largest)))

    def _matching(self) -> Bools:
        """Return whether the search finds each name, (n_names)."""
        names = self._stacks.names
        if not self._view.search:
            return np.zeros(len(names), np.bool_)
        system_names = self._stacks.system_names
        is_found = name_finder(self._view.search, system_names)
        return np.array(
            [is_found(name) or (bool(system_names) and is_found(function_in(name))) for name in names],
            np.bool_,
        )

    def _matched(self, is_match: Bools) -> tuple[Int64s, int]:
        """Return the value of the stacks below the root in which a name matches, (n_sides), and the number of
        these names.
        """
        stacks, lengths = self._stacks, np.diff(self._stacks.offsets)
        has_match, is_below = np.zeros((2, len(lengths)), np.bool_)
        is_below[self._below] = True
        is_hit = is_match[stacks.rows] & np.repeat(is_below, lengths)
        filled = np.flatnonzero(lengths)
        if len(filled):
            has_match[filled] = np.logical_or.reduceat(is_hit, stacks.offsets[:-1][filled])
        is_found = np.zeros(len(stacks.names), np.bool_)
        is_found[stacks.rows[is_hit]] = True
        matched: Int64s = stacks.values[has_match].sum(axis=0)
        return matched, int(is_found.sum())


def _keys_of(names: Sequence[str]) -> UInt64s:
    digests = b"".join(blake2b(name.encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def _chained(parents: UInt64s, names: UInt64s) -> UInt64s:
    """Return the keys of chains, from those of their parents and of their last names; never 0."""
    mixed = (parents + names) * _FIRST
    mixed = (mixed ^ (mixed >> _HALF)) * _SECOND
    return np.maximum(mixed ^ (mixed >> _HALF), np.uint64(1))
