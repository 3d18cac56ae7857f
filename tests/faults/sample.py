"""Which operations on disk a test strikes at: one that a seed draws, one of each kind, or each in turn."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import count
from random import Random
from typing import Final, Protocol, TypeVar

_LONGEST_STRIDE: Final = 11
_LONGEST_STRIDE_OF_KINDS: Final = 3


class _Point(Protocol):
    @property
    def kind(self) -> Hashable:
        """Return what is equal for points of which each shows what the others would."""


Point = TypeVar("Point", bound=_Point)


class Sample(Protocol):
    """A choice among operations, numbered from 1."""

    is_all: bool
    # Whether it is for long runs, in which actions that nothing strikes are checked, too.
    is_thorough: bool

    def of(self, points: Sequence[Point]) -> list[Point]:
        """Return the points to strike at, in their order."""

    def targets(self) -> Iterator[int]:
        """Yield numbers of operations to strike at, rising without end; the caller stops."""


class All:
    """Each operation in turn."""

    is_all = is_thorough = True

    def of(self, points: Sequence[Point]) -> list[Point]:
        return list(points)

    def targets(self) -> Iterator[int]:
        return count(1)


class _Drawn:
    """The same ones for the same seed."""

    is_all = False

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)  # noqa: S311 - a draw that can be repeated

    def _rising(self, longest_stride: int) -> Iterator[int]:
        target = 0
        while True:
            target += self._random.randint(1, longest_stride)
            yield target


class Kinds(_Drawn):
    """One of each kind; of operations whose kinds aren't known before, every second on average."""

    is_thorough = True

    def of(self, points: Sequence[Point]) -> list[Point]:
        kinds: dict[Hashable, list[int]] = {}
        for at, point in enumerate(points):
            kinds.setdefault(point.kind, []).append(at)
        return [points[at] for at in sorted(map(self._random.choice, kinds.values()))]

    def targets(self) -> Iterator[int]:
        return self._rising(_LONGEST_STRIDE_OF_KINDS)


class Some(_Drawn):
    """One; of operations whose number isn't known before, a few."""

    is_thorough = False

    def of(self, points: Sequence[Point]) -> list[Point]:
        return [self._random.choice(points)]

    def targets(self) -> Iterator[int]:
        return self._rising(_LONGEST_STRIDE)
