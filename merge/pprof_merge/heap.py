"""The heap of a process that merges: within a merge its pages stay, and after it they go.

Only glibc needs to be told. Another C library has none of this, and is left alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
T = TypeVar("T")

# glibc heeds no larger one (DEFAULT_MMAP_THRESHOLD_MAX).
_LARGEST_BLOCK = (32 << 20) - (1 << 13)
# How many heaps there are for threads (M_ARENA_MAX in malloc.h).
_ARENA_MAX = -8
_LIBC = ctypes.CDLL(None)


def keep_heap() -> None:
    """For the rest of the process, up to 64 MiB that are free stay with it until they are trimmed.

    glibc gives free memory back once it is twice as much as the largest block that was ever mapped by itself
    and freed (M_MMAP_THRESHOLD in mallopt(3)), and pages that are asked for anew are slow: they took up to
    a seventh of a merge. A block that nobody writes to has no pages, so that this one costs nothing.
    """
    np.empty(_LARGEST_BLOCK, np.uint8)


def trim_heap() -> None:
    """Gives back all pages that are free now."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)


def trim_after(task: Callable[P, T]) -> Callable[P, T]:
    """Has a task that takes much memory for a moment give back all that is free when it ends."""

    @wraps(task)
    def trimming(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return task(*args, **kwargs)
        finally:
            trim_heap()

    return trimming


def share_heap() -> None:
    """From now on all threads share one heap, rather than each keep pages of its own."""
    if hasattr(_LIBC, "mallopt"):
        _LIBC.mallopt(_ARENA_MAX, 1)
