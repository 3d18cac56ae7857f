"""Overlap: as in llvm-profdata, over the edges that Go's compiler takes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import Profile, UnfitForFormat, decode, merge
from pprof_merge.analysis.call_edges import CallEdges
from pprof_merge.analysis.edge_overlap import overlap, overlap_of_edges

from tests.oracle.oracle import go_root

Weights = dict[tuple[bytes, int, bytes], int]

NAMES = [b"main.main", b"main.run", b"runtime.mallocgc", b"f\xff", b""]
WEIGHTS = st.dictionaries(
    st.tuples(st.sampled_from(NAMES), st.integers(-2, 5), st.sampled_from(NAMES)),
    st.integers(0, 1 << 62) | st.integers(0, 9),
    max_size=12,
)


def edges(weights: Weights) -> CallEdges:
    names = sorted({name for caller, _, callee in weights for name in (caller, callee)})
    rows = sorted((names.index(caller), offset, names.index(callee)) for caller, offset, callee in weights)
    caller, offset, callee = np.array(rows, np.int64).reshape(-1, 3).T
    ordered = [weights[names[first], by, names[last]] for first, by, last in rows]
    return CallEdges(names, caller, offset, callee, np.array(ordered, np.int64))


def plainly(a: Weights, b: Weights) -> float:
    """Return the overlap by the formula in LLVM's documentation, counter by counter."""
    sum_a, sum_b = sum(a.values()), sum(b.values())
    if not sum_a or not sum_b:
        return float(sum_a == sum_b)
    return sum(min(a[edge] / sum_a, b[edge] / sum_b) for edge in a.keys() & b.keys())


@given(WEIGHTS, WEIGHTS)
def test_is_the_formula_and_symmetric(a: Weights, b: Weights) -> None:
    found = overlap_of_edges(edges(a), edges(b))
    assert found == pytest.approx(plainly(a, b))
    assert found == overlap_of_edges(edges(b), edges(a))
    assert 0 <= found <= 1


@given(WEIGHTS, st.integers(1, 1000))
def test_how_much_was_sampled_makes_no_difference(weights: Weights, factor: int) -> None:
    smaller = {edge: weight % (1 << 40) for edge, weight in weights.items()}
    larger = {edge: weight * factor for edge, weight in smaller.items()}
    assert overlap_of_edges(edges(smaller), edges(larger)) == pytest.approx(1)


@given(WEIGHTS)
def test_nothing_in_common_is_0(weights: Weights) -> None:
    others = {(caller, offset + 100, callee): 1 for caller, offset, callee in [*weights, (b"", 0, b"")]}
    assert overlap_of_edges(edges(weights), edges(others)) == 0


def test_a_weight_below_0_is_none() -> None:
    a = edges({(b"f", 1, b"g"): -5, (b"f", 2, b"g"): 1})
    assert overlap_of_edges(a, edges({(b"f", 2, b"g"): 1})) == 1
    assert overlap_of_edges(a, edges({(b"f", 1, b"g"): 1})) == 0


@pytest.fixture(scope="module")
def services(profiles: Path) -> dict[str, Profile]:
    """Return the merge of the real profiles of each program."""
    names = ("apisvc-v1-", "apisvc-v2-", "etl-", "lintd-", "compile-")
    return {
        name: merge(decode(path.read_bytes()) for path in sorted(profiles.glob(f"{name}*.pb.gz")))
        for name in names
    }


def test_real_programs(services: dict[str, Profile]) -> None:
    """Two versions of a service have most in common, different programs at most the runtime."""
    for name, profile in services.items():
        assert overlap(profile, profile) == pytest.approx(1)
        others = {other: overlap(profile, services[other]) for other in services if other != name}
        assert all(share > 0.01 for share in others.values())
        for other, share in others.items():
            assert share > 0.5 if {name, other} == {"apisvc-v1-", "apisvc-v2-"} else share < 0.4


def test_a_profile_that_the_compiler_refuses_is_refused(services: dict[str, Profile]) -> None:
    profile = services["etl-"]
    functions = replace(profile.functions, start_line=np.zeros_like(profile.functions.start_line))
    with pytest.raises(UnfitForFormat, match="start line"):
        overlap(profile, profile.replace(functions=functions))


def test_a_large_profile_takes_no_time() -> None:
    profile = decode((go_root() / "src/cmd/compile/default.pgo").read_bytes())
    assert len(profile.samples) > 15_000
    start = time.process_time()
    assert overlap(profile, profile) == pytest.approx(1)
    assert time.process_time() - start < 1
