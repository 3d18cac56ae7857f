"""Profiles that were picked for a merge, in some order: their traces, part by part."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pprof_merge.columns.ragged import offsets_of, rows_of_indexes
from pprof_merge.merging.headers import in_columns
from pprof_merge.merging.traces import RAGGED, Traces
from pprof_merge.profile import Bytes, Header, Int32s, Int64s, Ints, ValueType

# A part has about so many traces, which bounds what it takes besides the sums.
_PART_TRACES = 1 << 16


class Place(NamedTuple):
    """What profiles are ordered by: the time in ns, and the SHA-256 of the bytes."""

    time_nanos: int
    digest: bytes


class Chunk(NamedTuple):
    """What is summed of p profiles: stacks (m,), values (m, n_types); `offsets` (p + 1) of each profile's."""

    stacks: Int64s
    values: Int64s
    offsets: Int64s


class Part(NamedTuple):
    """Traces of p profiles that follow one another; the columns besides the chunk are as `Traces` has them,
    with the offsets (p + 1) of each profile's mappings.
    """

    chunk: Chunk
    mappings: Int64s
    mapping_offsets: Int64s
    inner_columns: Int32s


class _Runs(NamedTuple):
    """Profiles with one header that lie side by side in traces: a row a run, which are in the traces with
    that index from one row to before another.
    """

    owners: Ints
    begins: Ints
    ends: Ints
    headers: Ints


class _Ragged:
    """A flat column of all traces, of which each profile has so many rows."""

    def __init__(self, columns: Sequence[Ints], counts: Sequence[Int64s]) -> None:
        self._columns = columns
        # The offsets of all, one's after another's, and where those of each begin.
        self._offsets = np.concatenate([offsets_of(of_traces) for of_traces in counts])
        self._firsts = offsets_of(np.array([len(of_traces) + 1 for of_traces in counts]))

    def of(self, runs: _Runs) -> list[Any]:
        """That of some runs, each apart."""
        firsts = self._firsts[runs.owners]
        begins, ends = self._offsets[firsts + runs.begins], self._offsets[firsts + runs.ends]
        places = zip(runs.owners.tolist(), begins.tolist(), ends.tolist(), strict=True)
        return [self._columns[owner][begin:end] for owner, begin, end in places]


class SelectedTraces:
    """The profiles with these numbers (n,) in all of the traces, of a dictionary with these headers.

    `times` and `durations` (n,) are in ns, `digests` (n, 32).
    """

    def __init__(self, traces: Sequence[Traces], numbers: Ints, headers: Sequence[Header]) -> None:
        self._traces, self._numbers, self._all_headers = [Traces.none(), *traces], numbers, headers
        # Which of the traces each is in, and where in them.
        firsts = offsets_of(np.array([len(each) for each in self._traces]))
        self._owners = rows_of_indexes(firsts, numbers)
        self._rows = numbers - firsts[self._owners]
        self._headers: Int32s = self._column("headers")
        self.times: Int64s = self._column("times")
        self.durations: Int64s = self._column("durations")
        self.digests: Bytes = self._column("digests")

    def __len__(self) -> int:
        return len(self._numbers)

    def order(self) -> Int64s:
        """Their places (n,) in the order of merging: that of time, then digest."""
        words = self.digests.view(">u8").astype(np.uint64)
        return np.lexsort((*words.T[::-1], self.times))

    def take(self, places: Int64s) -> SelectedTraces:
        """Those at some places, in their order."""
        return SelectedTraces(self._traces[1:], self._numbers[places], self._all_headers)

    def in_order(self) -> SelectedTraces:
        """The same in the order of merging."""
        return self.take(self.order())

    def place(self, index: int) -> Place:
        """That of one of them."""
        return Place(int(self.times[index]), self.digests[index].tobytes())

    def distinct_headers(self) -> tuple[list[Header], Ints]:
        """Their headers without times, each once, and which of them each profile has (n,)."""
        numbers, which = np.unique(self._headers, return_inverse=True)
        return [self._all_headers[number] for number in numbers.tolist()], which

    def headers(self) -> list[Header]:
        """Their headers without times, in order; of equal ones that follow one another, only one."""
        changes = np.flatnonzero(np.diff(self._headers, prepend=-1))
        return [self._all_headers[number] for number in self._headers[changes].tolist()]

    def parts(self, sample_types: tuple[ValueType, ...]) -> Iterator[Part]:
        """All, in order, with the values of these types, all of which each must have."""
        stacks, values, mappings, inner_columns = (
            _Ragged(
                [getattr(traces, name) for traces in self._traces],
                [getattr(traces, counts) for traces in self._traces],
            )
            for name, counts in RAGGED.items()
        )
        n_stacks, n_mappings = self._column("stack_counts"), self._column("mapping_counts")
        before = offsets_of(n_stacks)[:-1] // _PART_TRACES
        begins = np.flatnonzero(np.diff(before, prepend=-1)).tolist()
        for begin, end in pairwise([*begins, len(self)]):
            runs = self._runs(begin, end)
            headers = [self._all_headers[header] for header in runs.headers.tolist()]
            of_types = [
                in_columns(_rows(flat, header), header.sample_types, sample_types)
                for flat, header in zip(values.of(runs), headers, strict=True)
            ]
            yield Part(
                chunk=Chunk(
                    np.concatenate(stacks.of(runs), dtype=np.intp),  # as NumPy would for each use
                    np.concatenate(of_types),
                    offsets_of(n_stacks[begin:end]),
                ),
                mappings=np.concatenate(mappings.of(runs)),
                mapping_offsets=offsets_of(n_mappings[begin:end]),
                inner_columns=np.concatenate(inner_columns.of(runs)),
            )

    def _runs(self, begin: int, end: int) -> _Runs:
        """The runs of those from one place to before another."""
        owners, rows, headers = (column[begin:end] for column in (self._owners, self._rows, self._headers))
        is_next = (np.diff(owners) == 0) & (np.diff(rows) == 1) & (np.diff(headers) == 0)
        firsts = np.flatnonzero(np.append(True, ~is_next))
        ends = rows[np.append(firsts[1:], end - begin) - 1] + 1
        return _Runs(owners[firsts], rows[firsts], ends, headers[firsts])

    def _column(self, name: str) -> Any:
        """Of each of them, what is in a column that has a row for each profile."""
        columns = [getattr(traces, name) for traces in self._traces]
        return np.concatenate(columns)[self._numbers]


def _rows(values: Int64s, header: Header) -> Int64s:
    """Flat values of profiles with that header as (k, n_types)."""
    n_types = len(header.sample_types)
    return values.reshape(len(values) // max(n_types, 1), n_types)


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

    def pick(self, numbers: Iterable[int], headers: Sequence[Header]) -> SelectedTraces:
        """Some profiles, in that order; the headers are those of their dictionary."""
        return SelectedTraces(self.since(0), np.fromiter(numbers, np.int64), headers)

    def _add(self, traces: Traces, nbytes: int) -> range:
        numbers = range(len(self), len(self) + len(traces))
        if numbers:
            self._kept.append(_Kept(traces, numbers.start, nbytes))
        return numbers


def _texts(digests: Bytes) -> Any:
    """Digests (n, 32) as texts (n,), which are sorted and compared as a whole."""
    return np.ascontiguousarray(digests).view("S32").ravel()
