"""The types of NumPy's arrays, for annotations alone: who uses these names doesn't import NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Bools", "Bytes", "Floats", "Int32s", "Int64s", "Integers", "Ints", "UInt32s", "UInt64s"]

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Int32s = NDArray[np.int32]
    Int64s = NDArray[np.int64]
    UInt32s = NDArray[np.uint32]
    UInt64s = NDArray[np.uint64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]
    # Row numbers, in 32 or 64 bits.
    Ints = NDArray[np.signedinteger[Any]]
    Integers = NDArray[np.integer[Any]]
else:
    Bytes = Int32s = Int64s = UInt32s = UInt64s = Floats = Bools = Ints = Integers = Any
