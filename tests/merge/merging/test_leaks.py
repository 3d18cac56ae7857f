"""Memory of repeated merges is freed: columns that interpreted code hands to compiled code never are."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest
from pprof_merge import FORMATS, Collection, Profile, decode, encode, merge
from pprof_merge.analysis import split_types

from tests.merge.differential import read

ROUNDS = 15


def collected(bodies: list[bytes]) -> Profile:
    collection = Collection()
    numbers = [collection.add(body) for body in bodies]
    return collection.merge(numbers)


@pytest.mark.parametrize(
    "work",
    [
        lambda bodies: merge(map(decode, bodies)),
        collected,
        lambda bodies: [*split_types(decode(bodies[0]), [[0]])],
        lambda bodies: FORMATS["go"].write(decode(bodies[0])),
        lambda bodies: encode(decode(bodies[0])),
    ],
    ids=["merge", "collection", "split", "go", "encode"],
)
def test_what_is_done_again_is_freed(profiles: Path, work: object) -> None:
    assert callable(work)
    bodies = read(profiles, "apisvc-v1-*.pb.gz")[:2]
    tracemalloc.start()
    try:
        for _ in range(5):
            work(bodies)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(ROUNDS):
            work(bodies)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A column has at least 2 KB. Caches grow by some KB, once.
    assert after - before < ROUNDS * 2000
