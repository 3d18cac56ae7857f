"""Call edges: everything that Go's compiler takes from a profile, computed as the compiler computes it.

`edges` has the loops, `compiler` the conditions; here the edges are NumPy's arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pprof_merge.analysis.compiler import ADVICE, compiler_edges
from pprof_merge.analysis.edges import Edges
from pprof_merge.arrays import Bools, Int64s
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.columns.ragged import take_rows
from pprof_merge.columns.views import view64
from pprof_merge.profile import Profile

# Memory, in bytes, of one edge of a sample.
_EDGE_BYTES = 16


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
    `has_start_line` (n_samples) says whether the caller of any of them has one: without, the compiler can't
    match the call.
    """

    edges: CallEdges
    edge: Int64s
    offsets: Int64s
    has_start_line: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))

    @property
    def is_used(self) -> bool:
        """Return whether the compiler uses the profile: it ignores one whose weights add up to 0."""
        return bool(self.edges.weight.sum())


def call_edges(profile: Profile, budget: Budget = UNBOUNDED) -> CallEdges:
    """Return the call edges of a profile.

    The compiler ignores a profile that has none, or whose weights add up to 0. Raises UnfitForFormat where
    the compiler fails: no sample type that it takes, or no `start_line` at all. Raises OutputTooLarge if
    computing the edges takes more than the budget.
    """
    return _seen(compiler_edges(profile, budget))


def traced_edges(profile: Profile, budget: Budget = UNBOUNDED) -> TracedEdges:
    """Return the edges that `call_edges` returns, and those of each sample. Raises as `call_edges` does."""
    edges = compiler_edges(profile, budget)
    # A sample that doesn't count has a call without steps, after all others.
    step_ends = view64(edges.step_ends, edges.calls.count + 1)
    step_ends = np.append(step_ends, step_ends[-1])
    calls = view64(edges.call_of_sample, profile.columns.n_samples)
    budget.check_rows(int(np.diff(step_ends)[calls].sum()), _EDGE_BYTES, ADVICE)
    index, offsets = take_rows(step_ends, calls)
    started = view64(edges.has_start_line, edges.n_nodes)[view64(edges.parent, edges.n_steps)][index]
    until = np.append(0, np.cumsum(started))
    return TracedEdges(
        _seen(edges),
        view64(edges.edge_of_step, edges.n_steps)[index],
        offsets,
        until[offsets[1:]] > until[offsets[:-1]],
    )


def _seen(edges: Edges) -> CallEdges:
    """Return edges as arrays, with those names that are in use."""
    caller, at, callee, weight = (
        view64(column, edges.n_edges) for column in (edges.caller, edges.at, edges.callee, edges.sum)
    )
    used, row = np.unique(np.concatenate((caller, callee)), return_inverse=True)
    names = [edges.names[rank] for rank in used.tolist()]
    return CallEdges(names, row[: len(caller)], at, row[len(caller) :], weight)
