"""Numbers for things that are met again and again: each new one gets the next."""

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
    """Gives each new key the next number, from 0."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        super().__init__()
        for key in keys:
            self[key]

    def __missing__(self, key: Key) -> int:
        number = self[key] = len(self)
        return number

    def since(self, number: int) -> list[Key]:
        """The keys from that number on."""
        return list(islice(self, number, None))

    def of(self, keys: Iterable[Key]) -> Int64s:
        """The numbers of some keys."""
        return np.fromiter(map(self.__getitem__, keys), np.int64)


Scalar = TypeVar("Scalar", bound=np.generic)

_FEWEST = 256


class GrowingArray(Generic[Scalar]):
    """Numbers of one type. Room grows by half, so that n appended ones cost n."""

    def __init__(self, dtype: type[Scalar]) -> None:
        self._room = np.empty(_FEWEST, dtype)
        self._size = 0

    def append(self, values: NDArray[Scalar]) -> None:
        """Puts values after those that are there."""
        size = self._size + len(values)
        if size > len(self._room):
            room = np.empty(max(size, len(self._room) * 3 // 2), self._room.dtype)
            room[: self._size] = self.view
            self._room = room
        self._room[self._size : size] = values
        self._size = size

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        return self._room.nbytes

    @property
    def view(self) -> NDArray[Scalar]:
        """All values; not to be kept, since the next `append` may move them."""
        return self._room[: self._size]
