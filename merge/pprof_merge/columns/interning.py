"""Interning of hashable keys, and arrays that grow: the parts that tables are made of."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from pprof_merge.profile import Int64s

if TYPE_CHECKING:
    from numpy.typing import NDArray


Key = TypeVar("Key", bound=Hashable)


class Interner(dict[Key, int]):
    """Numbers of keys, from 0: `interner[key]` is the number of a key, and a new key gets the next one."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        super().__init__()
        for key in keys:
            self[key]

    def __missing__(self, key: Key) -> int:
        number = self[key] = len(self)
        return number

    def since(self, number: int) -> list[Key]:
        """Return the keys whose numbers are `number` or higher, in order."""
        return list(islice(self, number, None))

    def of(self, keys: Iterable[Key]) -> Int64s:
        """Return the number of each key (n,); new keys are added."""
        return np.fromiter(map(self.__getitem__, keys), np.int64)


Scalar = TypeVar("Scalar", bound=np.generic)

_MIN_CAPACITY = 256


class GrowingArray(Generic[Scalar]):
    """A one-dimensional array to append to. Its capacity grows by half, so appending n values costs O(n)."""

    def __init__(self, dtype: type[Scalar]) -> None:
        self._buffer = np.empty(_MIN_CAPACITY, dtype)
        self._size = 0

    def append(self, values: NDArray[Scalar]) -> None:
        """Append the values."""
        size = self._size + len(values)
        if size > len(self._buffer):
            buffer = np.empty(max(size, len(self._buffer) * 3 // 2), self._buffer.dtype)
            buffer[: self._size] = self.view
            self._buffer = buffer
        self._buffer[self._size : size] = values
        self._size = size

    @property
    def nbytes(self) -> int:
        """The memory of the array in bytes, unused capacity included."""
        return self._buffer.nbytes

    @property
    def view(self) -> NDArray[Scalar]:
        """All values, without a copy. Do not keep the view: the next `append` may move the values."""
        return self._buffer[: self._size]
