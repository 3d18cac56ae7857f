"""Settings of glibc's heap: keep freed pages during a merge, and give them back after it.

With another C library these functions change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

__all__ = ["keep_heap", "keep_heap_anyway", "share_heap", "trim_after", "trim_heap"]

P = ParamSpec("P")
T = TypeVar("T")

# Just below DEFAULT_MMAP_THRESHOLD_MAX: glibc ignores larger blocks when it adapts its threshold.
_LARGEST_BLOCK = (32 << 20) - (1 << 13)
# Options of mallopt(3), as malloc.h numbers them: how much free memory stays, which blocks are mapped
# separately, and how many heaps threads may have.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8


def keep_heap(largest_block: int = _LARGEST_BLOCK) -> None:
    """Let the process keep free memory, up to twice the size of a block, until `trim_heap` gives it back.

    glibc returns free memory to the system once there is twice as much as the largest block that was mapped
    separately and then freed (M_MMAP_THRESHOLD in mallopt(3)), and larger blocks as soon as they are freed.
    Fetching those pages again took up to a seventh of a merge's time. So this allocates and frees one block;
    nothing is written to it, so it never occupies any pages.
    """
    bytes(largest_block)


def keep_heap_anyway() -> None:
    """Do what `keep_heap` does where the environment has set how much free memory stays.

    glibc then adapts nothing. Dask sets MALLOC_TRIM_THRESHOLD_ for its workers, and fetching pages again took
    a sixth of their time.
    """
    if hasattr(_libc(), "mallopt"):
        _libc().mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK)
        _libc().mallopt(_TRIM_THRESHOLD, 2 * _LARGEST_BLOCK)


def trim_heap() -> None:
    """Return all pages that are free now to the system."""
    if hasattr(_libc(), "malloc_trim"):
        _libc().malloc_trim(0)


def trim_after(task: Callable[P, T]) -> Callable[P, T]:
    """Return `task` wrapped so that it trims the heap when it ends, whether it returns or raises."""

    @wraps(task)
    def trimming(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return task(*args, **kwargs)
        finally:
            trim_heap()

    return trimming


def share_heap() -> None:
    """Make all threads share one heap from now on, so that they do not each keep free pages of their own."""
    if hasattr(_libc(), "mallopt"):
        _libc().mallopt(_ARENA_MAX, 1)


@cache
def _libc() -> Any:
    """Return the C library."""
    from ctypes import CDLL  # noqa: PLC0415 - the command starts faster without

    return CDLL(None)
