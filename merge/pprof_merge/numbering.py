"""Numbers for things that are met again and again: each new one gets the next."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import islice
from typing import TypeVar

import numpy as np

from pprof_merge.profile import Int64s

Key = TypeVar("Key", bound=Hashable)


class Numbers(dict[Key, int]):
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
