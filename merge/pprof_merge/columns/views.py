"""NumPy's views of columns: arrays on the same memory, for sums and analysis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from librt.vecs import vec
    from mypy_extensions import i32, i64

    from pprof_merge.arrays import Int32s, Int64s


def view64(column: vec[i64], size: int) -> Int64s:
    """Return the first `size` numbers of a column as an array that can't be written to."""
    return np.frombuffer(memoryview(column), np.int64, size) if size else np.zeros(0, np.int64)


def view32(column: vec[i32], size: int) -> Int32s:
    """Return the first `size` numbers of a column of 32 bits as an array that can't be written to."""
    return np.frombuffer(memoryview(column), np.int32, size) if size else np.zeros(0, np.int32)
