"""Call edges: what the tests of the format `go` don't cover."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pprof_merge import Profile, decode, merge
from pprof_merge.analysis.call_edges import call_edges, traced_edges
from pprof_merge.analysis.compiler import weight_column


@pytest.fixture(scope="module")
def profile(profiles: Path) -> Profile:
    return merge(decode(path.read_bytes()) for path in sorted(profiles.glob("apisvc-*.pb.gz")))


def test_edges_add_up_sample_by_sample(profile: Profile) -> None:
    traced = traced_edges(profile)
    values = profile.samples.values[:, weight_column(profile.header)]
    added = np.repeat(values, np.diff(traced.offsets))
    sums = np.bincount(traced.edge, added, minlength=len(traced.edges))
    assert sums.tolist() == traced.edges.weight.tolist() == call_edges(profile).weight.tolist()


def test_a_sample_alone_has_the_edges_that_are_traced_to_it(profile: Profile) -> None:
    traced = traced_edges(profile)
    is_kept = np.arange(len(profile.samples)) % 97 == 0
    values = np.where(is_kept[:, np.newaxis], profile.samples.values, 0)
    alone = call_edges(profile.replace(samples=replace(profile.samples, values=values)))
    edge = traced.edge[np.repeat(is_kept, np.diff(traced.offsets))]
    expected = {
        (traced.edges.names[caller], offset, traced.edges.names[callee])
        for caller, offset, callee in zip(
            traced.edges.caller[edge].tolist(),
            traced.edges.offset[edge].tolist(),
            traced.edges.callee[edge].tolist(),
            strict=True,
        )
    }
    columns = (alone.caller.tolist(), alone.offset.tolist(), alone.callee.tolist())
    rows = zip(*columns, strict=True)
    assert {(alone.names[caller], offset, alone.names[callee]) for caller, offset, callee in rows} == expected


def test_many_locations(profile: Profile) -> None:
    """Rows of locations are 32-bit in merges, but the number of a pair of locations needs more bits."""
    n_before = 100_000
    locations, lines = profile.locations, profile.locations.lines
    shifted = profile.replace(
        samples=replace(profile.samples, locations=(profile.samples.locations + n_before).astype(np.int32)),
        locations=replace(
            locations,
            mapping=np.append(np.full(n_before, -1), locations.mapping),
            address=np.append(np.zeros(n_before, np.uint64), locations.address),
            folded=np.append(np.zeros(n_before, np.bool_), locations.folded),
            lines=replace(lines, offsets=np.append(np.zeros(n_before, np.int64), lines.offsets)),
        ),
    )
    found, expected = call_edges(shifted), call_edges(profile)
    assert found.names == expected.names
    assert found.weight.tolist() == expected.weight.tolist()
