"""The heap of a process that merges: arrays come and go by the megabyte, and its pages should stay."""

from __future__ import annotations

import numpy as np

# glibc heeds no larger one (DEFAULT_MMAP_THRESHOLD_MAX).
_LARGEST_BLOCK = (32 << 20) - (1 << 13)


def keep_heap() -> None:
    """For the rest of the process, up to 64 MiB that are free stay with it, where the C library is glibc.

    It gives free memory back once it is twice as much as the largest block that was ever mapped by itself
    and freed (M_MMAP_THRESHOLD in mallopt(3)), and pages that are asked for anew are slow: they took up to
    a seventh of a merge. A block that nobody writes to has no pages, so that this one costs nothing.
    """
    np.empty(_LARGEST_BLOCK, np.uint8)
