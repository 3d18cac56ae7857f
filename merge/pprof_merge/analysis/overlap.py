"""Overlap: how alike two profiles are to Go's compiler, from 0 (nothing in common) to 1 (the same shares).

It is the measure of `llvm-profdata overlap` (LLVM's docs/CommandGuide/llvm-profdata.rst), with call edges
for counters: the sum, over all edges, of the smaller of the two profiles' shares of weight.

    overlap(a, b) = Σ min(weight_a(edge) / Σ weight_a, weight_b(edge) / Σ weight_b)

How much was sampled makes no difference. 1 - overlap is the share of weight that would have to be moved from
some edges to others to make one profile of the other.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pprof_merge.analysis.call_edges import CallEdges, call_edges, weighing_column
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.profile import Floats, Int64s, Ints, Profile


def overlap(a: Profile, b: Profile, budget: Budget = UNBOUNDED) -> float:
    """Of two profiles. Raises UnfitForFormat where the compiler would refuse one, and OutputTooLarge where
    one has too many calls to be compared within the budget.
    """
    return overlap_of_edges(call_edges(a, budget), call_edges(b, budget))


def overlap_of_edges(a: CallEdges, b: CallEdges) -> float:
    """Of two profiles' edges.

    Two without any weight are alike, since the compiler ignores both; one is unlike all that has some.
    """
    shares_a, shares_b = shares(a.weight), shares(b.weight)
    if not shares_a.any() and not shares_b.any():
        return 1.0
    keys = _common_keys(a, b)
    order = np.lexsort(keys)
    # An edge is in each once: what is in both lies side by side, a's first.
    is_same = np.all([np.diff(key[order]) == 0 for key in keys], axis=0)
    first, second = order[:-1][is_same], order[1:][is_same] - len(a)
    # Rounding must not make it more than all.
    return min(1.0, float(np.minimum(shares_a[first], shares_b[second]).sum()))


def shares(weight: Int64s) -> Floats:
    """Of the sum; all 0 where that is 0. A weight below 0, as in a difference of profiles, is none."""
    counted: Floats = np.maximum(weight, 0).astype(np.float64)
    return counted / max(float(counted.sum()), 1.0)


def _common_keys(a: CallEdges, b: CallEdges) -> list[Int64s]:
    """Columns that tell the edges of both apart, a's rows and then b's."""
    numbers = {name: number for number, name in enumerate(sorted({*a.names, *b.names}))}
    rows = [_numbers_of(edges.names, numbers) for edges in (a, b)]
    return [
        np.concatenate((a.offset, b.offset)),
        np.concatenate((rows[0][a.callee], rows[1][b.callee])),
        np.concatenate((rows[0][a.caller], rows[1][b.caller])),
    ]


def _numbers_of(names: list[bytes], numbers: Mapping[bytes, int]) -> Int64s:
    return np.fromiter(map(numbers.__getitem__, names), np.int64, len(names))


def leaf_shares(profile: Profile) -> Floats:
    """Each sample's share of the weight (n_samples). Raises UnfitForFormat where Go's compiler takes none."""
    return shares(profile.samples.values[:, weighing_column(profile.header)])


def leaf_functions(profile: Profile) -> Ints:
    """The function of each sample (n_samples): -1 where there is no stack, or no line."""
    samples = profile.samples
    leaf = samples.location_offsets[:-1]
    has_stack = samples.location_offsets[1:] > leaf
    found = np.full(len(samples), -1)
    found[has_stack] = outermost_functions(profile)[samples.locations[leaf[has_stack]]]
    return found


def outermost_functions(profile: Profile) -> Ints:
    """The function of each location's code (n_locations): -1 where it has no line."""
    lines = profile.locations.lines
    found = np.full(len(profile.locations), -1)
    has_lines = np.flatnonzero(np.diff(lines.offsets))
    found[has_lines] = lines.function[lines.offsets[has_lines + 1] - 1]
    return found
