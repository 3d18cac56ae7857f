"""The traces of all profiles of a `Collection`, by number: those that came together lie together."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pprof_merge.picked import Picked
from pprof_merge.profile import Bytes, Header, Int64s
from pprof_merge.traces import Traces


class _Kept(NamedTuple):
    """Traces, the number of the first of their profiles, and how much memory of their own they take."""

    traces: Traces
    first: int
    nbytes: int


def _first(kept: _Kept) -> int:
    return kept.first


class AllTraces:
    """Profiles are numbered in the order in which they are added."""

    def __init__(self) -> None:
        self._kept: list[_Kept] = []
        # The numbers in the order of digests, as of when one was looked for last.
        self._by_digest: Int64s = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return self._kept[-1].first + len(self._kept[-1].traces) if self._kept else 0

    @property
    def nbytes(self) -> int:
        """The memory that they take, without the arrays of segments."""
        return sum(kept.nbytes for kept in self._kept)

    def add(self, traces: Traces) -> range:
        """Adds profiles; returns their numbers."""
        return self._add(traces, traces.nbytes)

    def add_segment(self, traces: Traces) -> None:
        """Adds profiles whose arrays are those of a segment."""
        self._add(traces, 0)

    def replace_last(self, traces: Traces) -> None:
        """The profiles that were added last have just these traces, in the arrays of a segment."""
        del self._kept[bisect_left(self._kept, len(self) - len(traces), key=_first) :]
        self._add(traces, 0)

    def since(self, number: int) -> list[Traces]:
        """Those of the profiles from that number on, which was the next one after some addition."""
        return [kept.traces for kept in self._kept[bisect_left(self._kept, number, key=_first) :]]

    def find(self, number: int) -> tuple[Traces, int]:
        """The traces that a profile is in, and where."""
        kept = self._kept[bisect_right(self._kept, number, key=_first) - 1]
        return kept.traces, number - kept.first

    def with_digests(self, digests: Bytes) -> Int64s:
        """The numbers of the profiles with these digests (n, 32), the first of each; -1 for none."""
        if not len(self):
            return np.full(len(digests), -1)
        every, wanted = _texts(np.concatenate([kept.traces.digests for kept in self._kept])), _texts(digests)
        if len(self._by_digest) < len(self):
            self._by_digest = np.argsort(every, kind="stable")
        places = np.searchsorted(every, wanted, sorter=self._by_digest)
        found = self._by_digest[np.minimum(places, len(self) - 1)]
        return np.where(every[found] == wanted, found, -1)

    def pick(self, numbers: Iterable[int], headers: Sequence[Header]) -> Picked:
        """Some profiles, in that order; the headers are those of their dictionary."""
        return Picked(self.since(0), np.fromiter(numbers, np.int64), headers)

    def _add(self, traces: Traces, nbytes: int) -> range:
        numbers = range(len(self), len(self) + len(traces))
        if numbers:
            self._kept.append(_Kept(traces, numbers.start, nbytes))
        return numbers


def _texts(digests: Bytes) -> Any:
    """Digests (n, 32) as texts (n,), which are sorted and compared as a whole."""
    return np.ascontiguousarray(digests).view("S32").ravel()
