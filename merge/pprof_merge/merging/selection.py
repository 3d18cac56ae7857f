"""All profiles of a collection, and a selection of them, read part by part for a merge."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, pairwise
from typing import Any, NamedTuple

import numpy as np

from pprof_merge.arrays import Bytes, Int32s, Int64s, Ints
from pprof_merge.columns.narrow import Slices
from pprof_merge.columns.ragged import offsets_of, rows_of_indexes
from pprof_merge.merging.headers import SortKey, column_order
from pprof_merge.merging.numbered import NumberedProfiles, PackedProfiles, PackedSamples
from pprof_merge.profile import Header, ValueType

# The samples of a part, about, which bounds the memory of a merge besides the sums.
_PART_SAMPLES = 1 << 18


class Chunk(NamedTuple):
    """The samples of p profiles: `stacks` (m,) and `values` (m, n_types), ragged by `offsets` (p + 1)."""

    stacks: Int64s
    values: Int64s
    offsets: Int64s


class Part(NamedTuple):
    """p consecutive profiles of a selection: a chunk of samples, and columns as in `NumberedProfiles`.

    `mappings` are ragged by `mapping_offsets` (p + 1).
    """

    chunk: Chunk
    mappings: Int64s
    mapping_offsets: Int64s
    inner_columns: Int32s


class _Runs(NamedTuple):
    """Runs of profiles that are consecutive both in the selection and in one block.

    Run i has the profiles begins[i] to ends[i] - 1 of the block with the index owners[i].
    """

    owners: Ints
    begins: Ints
    ends: Ints


class _Offsets:
    """Where the rows of profiles are in a ragged column of several blocks."""

    def __init__(self, counts: Sequence[Int64s]) -> None:
        # The offsets of all blocks, one after another, and where those of each begin.
        self._offsets = np.concatenate([offsets_of(of_block) for of_block in counts])
        self._firsts = offsets_of(np.array([len(of_block) + 1 for of_block in counts]))

    def of(self, runs: _Runs) -> tuple[Int64s, Int64s]:
        """Return where the rows of each run begin and end in its block (n,)."""
        firsts = self._firsts[runs.owners]
        return self._offsets[firsts + runs.begins], self._offsets[firsts + runs.ends]

    def rows(self, columns: Sequence[Any], runs: _Runs) -> Any:
        """Return the rows of all runs, joined; `columns` are those of the blocks."""
        slices = Slices(runs.owners, *self.of(runs))
        return np.concatenate([columns[owner][begin:end] for owner, begin, end in slices.listed])


class SelectedProfiles:
    """A selection of n profiles, by their `numbers` (n,) in the concatenation of `blocks`, in any order.

    `headers` are those of the profiles' dictionary. The attributes `times` and `durations` (n,) are in ns,
    `digests` are (n, 32).
    """

    def __init__(self, blocks: Sequence[PackedProfiles], numbers: Ints, headers: Sequence[Header]) -> None:
        every = [*NumberedProfiles.none().packed(), *blocks]
        self._all_headers = headers
        firsts = offsets_of(np.array([len(each) for each in every]))
        owners = rows_of_indexes(firsts, numbers)
        # Only the blocks of selected profiles are used, and the first, which is empty.
        is_used = np.bincount(owners, minlength=len(every)) > 0
        is_used[0] = True
        self._blocks = [*compress(every, is_used.tolist())]
        # The index of the block that each profile is in, its row there, and its number among the blocks.
        self._owners = (np.cumsum(is_used) - 1)[owners]
        self._rows = numbers - firsts[owners]
        self._numbers = offsets_of(np.array([len(each) for each in self._blocks]))[self._owners] + self._rows
        self._headers: Int32s = self._column("headers")
        self.times: Int64s = self._column("times")
        self.durations: Int64s = self._column("durations")
        self.digests: Bytes = self._column("digests")

    def __len__(self) -> int:
        return len(self._numbers)

    def order(self) -> Int64s:
        """Return the positions (n,) of the profiles in the order of merging, that of `SortKey`."""
        order = np.argsort(self.times, kind="stable")
        if np.diff(self.times[order]).all():  # no two have the same time
            return order
        words = self.digests.view(">u8").astype(np.uint64)
        return np.lexsort((*words.T[::-1], self.times))

    def take(self, positions: Int64s) -> SelectedProfiles:
        """Return the selection of the profiles at these positions, in this order."""
        return SelectedProfiles(self._blocks[1:], self._numbers[positions], self._all_headers)

    def in_merge_order(self) -> SelectedProfiles:
        """Return the selection in the order of merging."""
        return self.take(self.order())

    def sort_key(self, position: int) -> SortKey:
        """Return the sort key of the profile at a position."""
        return SortKey(int(self.times[position]), self.digests[position].tobytes())

    def distinct_headers(self) -> tuple[list[Header], Ints]:
        """Return the distinct headers, without times, and the index of each profile's header in them (n,)."""
        numbers, which = np.unique(self._headers, return_inverse=True)
        return [self._all_headers[number] for number in numbers.tolist()], which

    def headers(self) -> list[Header]:
        """Return the headers in order, without times: each once, unless some have a negative period.

        The period of a merge then depends on how often they come.
        """
        _, firsts = np.unique(self._headers, return_index=True)
        distinct = [self._all_headers[number] for number in self._headers[np.sort(firsts)].tolist()]
        if all(header.period >= 0 for header in distinct):
            return distinct
        return [self._all_headers[number] for number in self._headers.tolist()]

    def parts(self, sample_types: tuple[ValueType, ...]) -> Iterator[Part]:
        """Yield all profiles, in order, with the values of these types in this order.

        Every profile must have all of the types.
        """
        orders = {
            number: column_order(self._all_headers[number].sample_types, sample_types)
            for number in np.flatnonzero(np.bincount(self._headers)).tolist()
        }
        columns = sorted({column for order in orders.values() for column in order})
        samples = PackedSamples(self._blocks, columns)
        stacks, mappings, inner_columns = (
            _Offsets([getattr(block, counts) for block in self._blocks])
            for counts in ("stack_counts", "mapping_counts", "inner_column_counts")
        )
        of_mappings = [block.mappings for block in self._blocks]
        of_inner_columns = [block.inner_columns for block in self._blocks]
        n_stacks, n_mappings = self._column("stack_counts"), self._column("mapping_counts")
        before = offsets_of(n_stacks)[:-1] // _PART_SAMPLES
        begins = np.flatnonzero(np.diff(before, prepend=-1)).tolist()
        for begin, end in pairwise([*begins, len(self)]):
            runs = self._runs(begin, end)
            counts = n_stacks[begin:end]
            slices = Slices(runs.owners, *stacks.of(runs))
            numbers, values = samples.take(slices, self._numbers[begin:end], counts)
            yield Part(
                chunk=Chunk(numbers, self._in_order(values, begin, counts, orders).T, offsets_of(counts)),
                mappings=mappings.rows(of_mappings, runs),
                mapping_offsets=offsets_of(n_mappings[begin:end]),
                inner_columns=inner_columns.rows(of_inner_columns, runs),
            )

    def _in_order(self, values: Int64s, begin: int, counts: Int64s, orders: dict[int, list[int]]) -> Int64s:
        """Return the values (k, m) of profiles from `begin` on in the order that their headers say.

        `counts` are the profiles' samples, and `orders` the columns by the number of a header.
        """
        columns = sorted({column for order in orders.values() for column in order})
        if all(order == columns for order in orders.values()):
            return values
        headers, which = np.unique(self._headers[begin : begin + len(counts)], return_inverse=True)
        rows = np.searchsorted(columns, [orders[header] for header in headers.tolist()])
        return np.take_along_axis(values, rows.T[:, np.repeat(which, counts)], axis=0)

    def totals(self, sample_type: ValueType) -> Int64s:
        """Return the sum of the sizes of each profile's values of one sample type (n,). All must have it."""
        sums = [np.zeros(0, np.int64)]
        if len(self):
            for part in self.parts((sample_type,)):
                before = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.abs(part.chunk.values[:, 0]))))
                sums.append(np.diff(before[part.chunk.offsets]))
        return np.concatenate(sums)

    def _runs(self, begin: int, end: int) -> _Runs:
        """Return the runs of the profiles at the positions `begin` to `end` - 1."""
        owners, rows = self._owners[begin:end], self._rows[begin:end]
        is_next = (np.diff(owners) == 0) & (np.diff(rows) == 1)
        firsts = np.flatnonzero(np.append(True, ~is_next))
        ends = rows[np.append(firsts[1:], end - begin) - 1] + 1
        return _Runs(owners[firsts], rows[firsts], ends)

    def _column(self, name: str) -> Any:
        """Return the entries (n,) of the selected profiles in a column with one row a profile."""
        columns = [getattr(block, name) for block in self._blocks]
        return np.concatenate(columns)[self._numbers]


def reorder_columns(
    values: Int64s, sample_types: tuple[ValueType, ...], wanted: tuple[ValueType, ...]
) -> Int64s:
    """Return values (n, n_types) of these sample types with the columns in the order `wanted`."""
    return values if sample_types == wanted else values[:, column_order(sample_types, wanted)]


class _Block(NamedTuple):
    """Profiles that were added together, the number of the first, and their memory in bytes.

    `nbytes` is 0 if the arrays are those of a segment, which somebody else accounts for.
    """

    profiles: PackedProfiles
    first: int
    nbytes: int


def _first(block: _Block) -> int:
    return block.first


class AllProfiles:
    """All profiles of a collection, numbered in the order in which they are added."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        # Profile numbers sorted by digest, as of the last search.
        self._by_digest: Int64s = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return self._blocks[-1].first + len(self._blocks[-1].profiles) if self._blocks else 0

    @property
    def nbytes(self) -> int:
        """The memory of the profiles in bytes, without those of segments."""
        return sum(block.nbytes for block in self._blocks)

    def add(self, profiles: NumberedProfiles) -> range:
        """Add profiles; return their numbers."""
        first = len(self)
        for packed in profiles.packed():
            self._add(packed, packed.nbytes)
        return range(first, len(self))

    def add_segment(self, every: Sequence[PackedProfiles]) -> None:
        """Add profiles whose arrays are those of a segment."""
        for packed in every:
            self._add(packed, 0)

    def replace_last(self, every: Sequence[PackedProfiles]) -> None:
        """Replace the last profiles by equal ones whose arrays are those of a segment."""
        first = len(self) - sum(map(len, every))
        del self._blocks[bisect_left(self._blocks, first, key=_first) :]
        self.add_segment(every)

    def since(self, number: int) -> list[NumberedProfiles]:
        """Return the profiles from `number` on, which must be the first of an addition."""
        first = bisect_left(self._blocks, number, key=_first)
        return [block.profiles.unpacked() for block in self._blocks[first:]]

    def find(self, number: int) -> tuple[PackedProfiles, int]:
        """Return the profiles that a profile was added with, and its row there."""
        block = self._blocks[bisect_right(self._blocks, number, key=_first) - 1]
        return block.profiles, number - block.first

    def with_digests(self, digests: Bytes) -> Int64s:
        """Return the number of the first profile with each of these digests (n, 32); -1 if there is none."""
        if not len(self):
            return np.full(len(digests), -1)
        every = _as_strings(np.concatenate([block.profiles.digests for block in self._blocks]))
        wanted = _as_strings(digests)
        if len(self._by_digest) < len(self):
            self._by_digest = np.argsort(every, kind="stable")
        positions = np.searchsorted(every, wanted, sorter=self._by_digest)
        found = self._by_digest[np.minimum(positions, len(self) - 1)]
        return np.where(every[found] == wanted, found, -1)

    def select(self, numbers: Iterable[int], headers: Sequence[Header]) -> SelectedProfiles:
        """Return the profiles with these numbers, in this order; `headers` are those of their dictionary."""
        blocks = [block.profiles for block in self._blocks]
        return SelectedProfiles(blocks, np.fromiter(numbers, np.int64), headers)

    def _add(self, profiles: PackedProfiles, nbytes: int) -> None:
        if len(profiles):
            self._blocks.append(_Block(profiles, len(self), nbytes))


def _as_strings(digests: Bytes) -> Any:
    """Return digests (n, 32) as byte strings (n,), so that NumPy sorts and compares them as a whole."""
    return np.ascontiguousarray(digests).view("S32").ravel()
