"""Overlap: how alike two profiles are to Go's compiler, from 0 (nothing in common) to 1 (the same shares).

The measure is that of `llvm-profdata overlap` (LLVM's docs/CommandGuide/llvm-profdata.rst), with call edges
in place of counters: the sum, over all edges, of the smaller of the two profiles' shares of weight.

    overlap(a, b) = Σ min(weight_a(edge) / Σ weight_a, weight_b(edge) / Σ weight_b)

How much was sampled makes no difference. 1 - overlap is the share of weight that would have to move from one
edge to another to turn one profile into the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pprof_merge.analysis.call_edges import CallEdges, call_edges
from pprof_merge.analysis.compiler import weight_column
from pprof_merge.arrays import Floats, Int64s, Ints
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.profile import Profile

_MAX_MOVED = 20


@dataclass(frozen=True, slots=True)
class MovedFunction:
    """A function whose share of the weight of all calls changed: its share now and before, from 0 to 1.

    `place` and `place_before` are its places among the functions that are called, 1 for the one with the
    largest share; None where it isn't called.
    """

    function: str
    share: float
    before: float
    place: int | None
    place_before: int | None


def overlap(a: Profile, b: Profile, budget: Budget = UNBOUNDED) -> float:
    """Return the overlap of two profiles, from 0 to 1.

    Raises UnfitForFormat if the compiler would refuse one of them, and OutputTooLarge if one has too many
    calls to be compared within the budget.
    """
    return overlap_of_edges(call_edges(a, budget), call_edges(b, budget))


def overlap_of_edges(a: CallEdges, b: CallEdges) -> float:
    """Return the overlap of two profiles' edges, from 0 to 1.

    Two profiles without weight overlap by 1, since the compiler ignores both. A profile without weight and
    one with weight overlap by 0.
    """
    shares_a, shares_b = shares(a.weight), shares(b.weight)
    if not shares_a.any() and not shares_b.any():
        return 1.0
    keys = _common_keys(a, b)
    order = np.lexsort(keys)
    # Each profile has an edge once, so the two rows of a common edge are neighbours, a's first.
    is_same = np.all([np.diff(key[order]) == 0 for key in keys], axis=0)
    first, second = order[:-1][is_same], order[1:][is_same] - len(a)
    # Rounding errors must not make the sum exceed 1.
    return min(1.0, float(np.minimum(shares_a[first], shares_b[second]).sum()))


def moved_functions(now: CallEdges, before: CallEdges) -> tuple[MovedFunction, ...]:
    """Return the functions whose shares changed most, largest change first, at most 20.

    A function's share is that of all calls of it. Functions whose shares are equal aren't listed.
    """
    names = sorted({*now.names, *before.names})
    ranks = {name: rank for rank, name in enumerate(names)}
    called, was_called = (_called(edges, ranks) for edges in (now, before))
    change = np.abs(called - was_called)
    places, places_before = _places(called), _places(was_called)
    return tuple(
        MovedFunction(
            function=names[row].decode(errors="backslashreplace"),
            share=float(called[row]),
            before=float(was_called[row]),
            place=int(places[row]) or None,
            place_before=int(places_before[row]) or None,
        )
        for row in np.argsort(-change, kind="stable")[:_MAX_MOVED].tolist()
        if change[row] > 0
    )


def _called(edges: CallEdges, ranks: Mapping[bytes, int]) -> Floats:
    """Return the share of all calls of each name, (n_ranks)."""
    rows = _ranks_of(edges.names, ranks)
    called: Floats = np.bincount(rows[edges.callee], shares(edges.weight), len(ranks)).astype(np.float64)
    return called


def _places(called: Floats) -> Int64s:
    """Return each share's place, 1 for the largest one; 0 for a share of 0."""
    places = np.zeros(len(called), np.int64)
    order = np.argsort(-called, kind="stable")
    places[order] = np.arange(1, len(called) + 1)
    places[called == 0] = 0
    return places


def shares(weight: Int64s) -> Floats:
    """Return each weight's share of the sum; all 0 if the sum is 0.

    A negative weight, as in the difference of two profiles, counts as 0.
    """
    counted: Floats = np.maximum(weight, 0).astype(np.float64)
    return counted / max(float(counted.sum()), 1.0)


def _common_keys(a: CallEdges, b: CallEdges) -> list[Int64s]:
    """Return the columns that identify an edge in either profile, first a's rows, then b's.

    They are in the order of np.lexsort: the least significant column comes first.
    """
    ranks = {name: rank for rank, name in enumerate(sorted({*a.names, *b.names}))}
    rows = [_ranks_of(edges.names, ranks) for edges in (a, b)]
    return [
        np.concatenate((a.offset, b.offset)),
        np.concatenate((rows[0][a.callee], rows[1][b.callee])),
        np.concatenate((rows[0][a.caller], rows[1][b.caller])),
    ]


def _ranks_of(names: list[bytes], ranks: Mapping[bytes, int]) -> Int64s:
    return np.fromiter(map(ranks.__getitem__, names), np.int64, len(names))


def leaf_shares(profile: Profile) -> Floats:
    """Return each sample's share of the weight, (n_samples).

    Raises UnfitForFormat if Go's compiler takes none of the sample types.
    """
    return shares(profile.samples.values[:, weight_column(profile.header)])


def leaf_functions(profile: Profile) -> Ints:
    """Return the row of the function whose code each sample was in, (n_samples).

    It is -1 for a sample without a stack, or whose leaf location has no line.
    """
    samples = profile.samples
    leaf = samples.location_offsets[:-1]
    has_stack = samples.location_offsets[1:] > leaf
    found = np.full(len(samples), -1)
    found[has_stack] = outermost_functions(profile)[samples.locations[leaf[has_stack]]]
    return found


def outermost_functions(profile: Profile) -> Ints:
    """Return the function that each location's code belongs to, as its row, (n_locations); -1 if unknown."""
    lines = profile.locations.lines
    found = np.full(len(profile.locations), -1)
    has_lines = np.flatnonzero(np.diff(lines.offsets))
    found[has_lines] = lines.function[lines.offsets[has_lines + 1] - 1]
    return found
