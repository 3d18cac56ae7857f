"""Interning of hashable keys."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import islice
from typing import TypeVar

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

    def of(self, keys: Iterable[Key]) -> list[int]:
        """Return the number of each key; new keys are added."""
        return [self[key] for key in keys]
