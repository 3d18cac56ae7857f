"""The heap of a process that merges: free memory stays with it, so that its pages aren't fetched again."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

_PROGRAM = """
import resource
import pprof_merge.heap
{prepare}
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    b"x" * (4 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
# The pages of one block of 4 MiB.
_PAGES = 1024


def faults(prepare: str, **environment: str) -> int:
    """Return how many pages 50 blocks of 4 MiB fetch, one after another."""
    program = [sys.executable, "-c", _PROGRAM.format(prepare=prepare)]
    done = subprocess.run(
        program, capture_output=True, text=True, check=True, env=os.environ | environment, timeout=60
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's heap has these settings")
def test_free_memory_stays_also_where_the_environment_says_otherwise() -> None:
    as_dask = {"MALLOC_TRIM_THRESHOLD_": "65536"}
    assert faults("pprof_merge.heap.keep_heap()") < 3 * _PAGES
    assert faults("pprof_merge.heap.keep_heap()", **as_dask) > 40 * _PAGES  # glibc adapts nothing then
    assert faults("pprof_merge.heap.keep_heap_anyway()", **as_dask) < 3 * _PAGES
    assert faults("pprof_merge.heap.keep_heap_anyway(); pprof_merge.heap.trim_heap()", **as_dask) < 3 * _PAGES
