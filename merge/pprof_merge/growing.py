"""A column that grows at its end: what `RowTable` and `Collection` keep their numbers in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)

_FEWEST = 256


class Growing(Generic[Scalar]):
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
