"""Outliers: which of many profiles are unlike the rest, as one of another program is. Part of the report.

A short profile overlaps little even with a merge of its own kind, since few samples hit few edges. So its
overlap with the merge of all others is divided by the mean overlap of as many samples drawn at random from
the merge of all. The quotient is the likeness; about 1 means as alike as chance allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pprof_merge.analysis.call_edges import TracedEdges
from pprof_merge.analysis.compiler import ADVICE, weight_column
from pprof_merge.arrays import Floats
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.columns.ragged import take_rows
from pprof_merge.merging.incremental import Contribution
from pprof_merge.profile import Header

# Profiles are compared in chunks of about this many stacks, which bounds the memory.
_CHUNK_STACKS = 1 << 18
# Memory, in bytes, that an edge of a stack takes; about three arrays exist at once, each with a third of it.
_EDGE_BYTES = 32
# The expected overlap is a smooth curve over the number of samples: it is computed at this many points, and
# interpolated between them.
_POINTS = 32


class OutlierScores(NamedTuple):
    """Figures of n profiles, each (n,).

    `overlap` is that with the merge of the others; `expected` is the mean overlap of as many calls drawn from
    the merge of all; `calls` is the number of sampled calls, an edge counted as often as it was sampled.
    Likeness is `overlap` divided by `expected`. Both are 0 for a profile that has no edges, or all of them.
    """

    overlap: Floats
    expected: Floats
    calls: Floats


def outlier_scores(
    header: Header, traced: TracedEdges, profiles: Sequence[Contribution], budget: Budget = UNBOUNDED
) -> OutlierScores:
    """Return the scores of the profiles in a merge.

    `header` and `traced` are the merge's header and edges, `profiles` what each profile contributed to it.
    Raises OutputTooLarge if the profiles' stacks have too many edges to be compared within the budget.
    """
    column = weight_column(header)
    total = np.maximum(traced.edges.weight, 0).astype(np.float64)
    of_none = np.zeros(0), np.zeros(0)
    found = [of_none, *(_overlaps(total, traced, column, chunk, budget) for chunk in _chunks(profiles))]
    overlap, weight = (np.concatenate(parts) for parts in zip(*found, strict=True))
    unit = _unit(header, column)
    return OutlierScores(overlap, _expected(total, weight / unit, float(total.sum()) / unit), weight / unit)


def _chunks(profiles: Sequence[Contribution]) -> Iterator[list[Contribution]]:
    """Yield the profiles in chunks of `_CHUNK_STACKS` stacks or more, but the last; no chunk is empty."""
    chunk: list[Contribution] = []
    size = 0
    for profile in profiles:
        chunk.append(profile)
        size += len(profile.samples)
        if size >= _CHUNK_STACKS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _overlaps(
    total: Floats, traced: TracedEdges, column: int, profiles: Sequence[Contribution], budget: Budget
) -> tuple[Floats, Floats]:
    """Return each profile's overlap with the rest, and its weight: (n_profiles,) each."""
    samples = np.concatenate([profile.samples for profile in profiles])
    values = np.concatenate([profile.values[:, column] for profile in profiles])
    owner = np.repeat(np.arange(len(profiles)), [len(profile.samples) for profile in profiles])
    in_merge = samples >= 0
    budget.check_rows(int(np.diff(traced.offsets)[samples[in_merge]].sum()), _EDGE_BYTES, ADVICE)
    index, offsets = take_rows(traced.offsets, samples[in_merge])
    n_edges = np.diff(offsets)
    keys = np.repeat(owner[in_merge], n_edges) * len(total) + traced.edge[index]
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    sums = np.add.reduceat(np.repeat(values[in_merge], n_edges)[order], starts) if len(starts) else starts
    own = np.maximum(sums, 0).astype(np.float64)
    owner, edge = np.divmod(keys[order][starts], max(len(total), 1))
    weight = np.zeros(len(profiles))
    np.add.at(weight, owner, own)
    rest = np.maximum(total.sum() - weight, 0)
    common = np.minimum(
        own / np.maximum(weight, 1)[owner],
        np.maximum(total[edge] - own, 0) / np.maximum(rest, 1)[owner],
    )
    overlap = np.zeros(len(profiles))
    np.add.at(overlap, owner, common)
    return overlap, weight


def _expected(total: Floats, n_calls: Floats, n_all: float) -> Floats:
    """Return the mean overlap of `n_calls` calls with the other calls, if all are drawn at random.

    `total` is the weight of each edge in the merge, `n_all` the number of all calls. With n = `n_calls`, m =
    `n_all` - n and p an edge's share of the weight, the edge's counts in the two parts are about Poisson
    variables of means n p and m p. The difference of their shares deviates about as much as the share of one
    Poisson variable whose mean is p n m / (n + m).
    """
    size = n_calls * np.maximum(n_all - n_calls, 0) / max(n_all, 1)
    expected = np.zeros(len(size))
    has_rest = size > 0
    if has_rest.any():
        share = total[total > 0] / total.sum()
        sizes = size[has_rest]
        points = np.geomspace(sizes.min(), sizes.max(), _POINTS)
        curve = [1 - _mean_deviations(share * point).sum() / (2 * point) for point in points.tolist()]
        expected[has_rest] = np.interp(np.log(sizes), np.log(points), curve)
    return expected


def _mean_deviations(mean: Floats) -> Floats:
    """Return E|X - mean| of Poisson variables: 2 mean^(k + 1) e^-mean / k!, k = ⌊mean⌋ (Ramasubban 1958)."""
    whole = np.floor(mean)
    k = np.maximum(whole, 1)
    stirling = k * np.log(k) - k + np.log(2 * np.pi * k) / 2 + 1 / (12 * k) - 1 / (360 * k**3)
    log_factorial = np.where(whole > 0, stirling, 0)
    deviations: Floats = 2 * np.exp((whole + 1) * np.log(mean) - mean - log_factorial)
    return deviations


def _unit(header: Header, column: int) -> int:
    """Return what one sample adds to a weight: 1, or the period (the CPU time between two samples)."""
    return 1 if header.sample_types[column].unit == b"count" else max(header.period, 1)
