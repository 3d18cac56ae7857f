"""Which operations on disk a test strikes at: one or a few that a seed draws, or each in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from random import Random
from typing import Final, Protocol, TypeVar

Point = TypeVar("Point")
DRAWN: Final = 1
_LONGEST_STRIDE: Final = 11


class Sample(Protocol):
    """A choice among operations, numbered from 1."""

    is_all: bool

    def of(self, points: Sequence[Point]) -> list[Point]:
        """Return the points to strike at, in their order."""

    def targets(self) -> Iterator[int]:
        """Yield numbers of operations to strike at, rising without end; the caller stops."""


class All:
    """Each operation in turn."""

    is_all = True

    def of(self, points: Sequence[Point]) -> list[Point]:
        return list(points)

    def targets(self) -> Iterator[int]:
        return count(1)


class Some:
    """A few, the same ones for the same seed."""

    is_all = False

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)  # noqa: S311 - a draw that can be repeated

    def of(self, points: Sequence[Point]) -> list[Point]:
        drawn = self._random.sample(range(len(points)), min(DRAWN, len(points)))
        return [points[at] for at in sorted(drawn)]

    def targets(self) -> Iterator[int]:
        target = 0
        while True:
            target += self._random.randint(1, _LONGEST_STRIDE)
            yield target
