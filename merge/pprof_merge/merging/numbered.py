"""Numbered profiles: each sample is the number of its stack, and its values.

`NumberedProfiles` are as they were read, and `PackedProfiles` as they are kept, in a fifth of the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np

from pprof_merge.arrays import Bytes, Int32s, Int64s, Ints
from pprof_merge.columns.narrow import Narrow, NarrowColumns, Slices, narrowed
from pprof_merge.columns.ragged import offsets_of

# The ragged columns, with the columns that say how many rows of them each profile has.
RAGGED = {
    "stacks": "stack_counts",
    "values": "value_counts",
    "mappings": "mapping_counts",
    "inner_columns": "inner_column_counts",
}

# How many times as many values there may be with zeros for the sample types that a profile hasn't.
_MOST_PADDED = 4


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """The columns that p profiles have in both forms: see `NumberedProfiles`. Rows on disk have them in this
    order.
    """

    headers: Int32s
    times: Int64s
    durations: Int64s
    digests: Bytes
    stack_counts: Int64s
    value_counts: Int64s
    mapping_counts: Int64s
    mappings: Int64s
    inner_column_counts: Int64s
    inner_columns: Int32s

    def __len__(self) -> int:
        return len(self.headers)

    def in_common(self) -> dict[str, Any]:
        """Return these columns by their names."""
        return {field.name: getattr(self, field.name) for field in fields(_Columns)}


@dataclass(frozen=True, slots=True, eq=False)
class NumberedProfiles(_Columns):
    """p profiles, one after another. Numbers are those of a `Dictionary`.

    One row a profile:

    - `headers` (p,): the number of its header, which has no times
    - `times`, `durations` (p,): its time and duration in ns
    - `digests` (p, 32): the SHA-256 of its bare protobuf

    Ragged columns, with the number of each profile's rows:

    - `stacks` (m,), `stack_counts` (p,): the stack of each sample, without samples whose values are all 0
    - `values`, `value_counts` (p,): the values, as many for each sample as the header has sample types
    - `mappings` (q, 7), `mapping_counts` (p,): the profile's first mapping, used or not, then those that
      its samples use, with the attributes at first use. For the columns see `mapping_use`
    - `inner_columns` (r,), `inner_column_counts` (p,): columns of source lines at locations that have more of
      them than the location's key in the dictionary
    """

    stacks: Int32s
    values: Int64s

    @classmethod
    def none(cls) -> Self:
        """Return no profile."""
        numbers, int32s = np.zeros(0, np.int64), np.zeros(0, np.int32)
        return cls(
            headers=int32s,
            times=numbers,
            durations=numbers,
            digests=np.zeros((0, 32), np.uint8),
            stack_counts=numbers,
            stacks=int32s,
            value_counts=numbers,
            values=numbers,
            mapping_counts=numbers,
            mappings=np.zeros((0, 7), np.int64),
            inner_column_counts=numbers,
            inner_columns=int32s,
        )

    @classmethod
    def joined(cls, every: Sequence[Self]) -> Self:
        """Return all of the given profiles, in order."""
        from_none = [cls.none(), *every]
        return cls(
            *(
                np.concatenate([getattr(numbered, field.name) for numbered in from_none])
                for field in fields(cls)
            )
        )

    @property
    def nbytes(self) -> int:
        """The memory of the arrays in bytes."""
        return sum(getattr(self, field.name).nbytes for field in fields(self))

    def packed(self) -> list[PackedProfiles]:
        """Return the same profiles packed, in order: together, unless some have far more sample types."""
        n_types = self.value_counts // np.maximum(self.stack_counts, 1)
        most = int(n_types.max(initial=0))
        if most * len(self.stacks) <= _MOST_PADDED * len(self.values):
            return [self._packed(most)]
        ends = [*(np.flatnonzero(np.diff(n_types)) + 1).tolist(), len(self)]
        return [self._part(begin, end).packed()[0] for begin, end in pairwise([0, *ends])]

    def _part(self, begin: int, end: int) -> Self:
        """Return the profiles from `begin` to `end` - 1."""
        columns = {field.name: getattr(self, field.name)[begin:end] for field in fields(self)}
        for name, counts in RAGGED.items():
            offsets = offsets_of(getattr(self, counts))
            columns[name] = getattr(self, name)[offsets[begin] : offsets[end]]
        return replace(self, **columns)

    def _packed(self, n_types: int) -> PackedProfiles:
        """Return the same profiles packed, with `n_types` columns of values."""
        if n_types * len(self.stacks) == len(self.values):
            matrix = np.ascontiguousarray(self.values.reshape(len(self.stacks), n_types).T)
        else:
            rows, columns = _places(self.stack_counts, self.value_counts)
            matrix = np.zeros((n_types, len(self.stacks)), np.int64)
            matrix[columns, rows] = self.values
        ratios = np.zeros((len(self), n_types), np.int64)
        values = []
        for number, column in enumerate(matrix):
            ratios[:, number] = self._ratios(matrix[0], column) if number else 0
            left = narrowed(column - matrix[0] * np.repeat(ratios[:, number], self.stack_counts))
            if left.nbytes and number and (plain := narrowed(column)).nbytes <= left.nbytes:
                ratios[:, number], left = 0, plain
            values.append(left)
        return PackedProfiles(**self.in_common(), stacks=narrowed(self.stacks), values=values, ratios=ratios)

    def _ratios(self, first: Int64s, column: Int64s) -> Int64s:
        """Return for each profile (p,) the ratio of two columns (m,) of values in its first sample, or 0."""
        ratios = np.zeros(len(self), np.int64)
        has_samples = self.stack_counts > 0
        at = offsets_of(self.stack_counts)[:-1][has_samples]
        ratios[has_samples] = column[at] // np.where(first[at] > 0, first[at], np.iinfo(np.int64).max)
        return ratios


@dataclass(frozen=True, slots=True, eq=False)
class PackedProfiles(_Columns):
    """The same as `NumberedProfiles`, but for `stacks` (m,) and `values`, which are in few bytes.

    There is a column of values (m,) for each of k sample types. Profiles with fewer have 0 in the others.
    A column has what is left when the first one, times the `ratios` (p, k) of the profile, is taken off. Time
    is often the number of samples times the period, so nothing is left.
    """

    stacks: Narrow
    values: list[Narrow]
    ratios: Int64s

    @property
    def nbytes(self) -> int:
        """The memory of the arrays in bytes."""
        arrays: int = sum(column.nbytes for column in (self.ratios, *self.in_common().values()))
        return arrays + sum(column.nbytes for column in (self.stacks, *self.values))

    def unpacked(self) -> NumberedProfiles:
        """Return the profiles as they were."""
        samples = PackedSamples([self], range(len(self.values)))
        begin, end = np.zeros(1, np.int64), np.array([self.stack_counts.sum()])
        whole = Slices(begin, begin, end)
        stacks, matrix = samples.take(whole, np.arange(len(self)), self.stack_counts)
        values = matrix.T.reshape(-1)
        if len(values) > int(self.value_counts.sum()):
            rows, columns = _places(self.stack_counts, self.value_counts)
            values = matrix[columns, rows]
        return NumberedProfiles(**self.in_common(), stacks=stacks.astype(np.int32), values=values)


class PackedSamples:
    """The samples of several blocks of packed profiles, joined, with the values in some `columns`."""

    def __init__(self, blocks: Sequence[PackedProfiles], columns: Sequence[int]) -> None:
        sizes = np.array([block.stack_counts.sum() for block in blocks], np.int64)
        nothing = narrowed(np.zeros(0, np.int64))
        self._stacks = NarrowColumns([block.stacks for block in blocks], sizes)
        self._first, *self._values = (
            NarrowColumns(
                [block.values[column] if column < len(block.values) else nothing for block in blocks], sizes
            )
            for column in (0, *columns)
        )
        self._begins_with_first = [*columns[:1]] == [0]
        # Zeros for the columns that a block hasn't.
        self._ratios = [
            np.concatenate(
                [
                    block.ratios[:, column] if column < len(block.values) else np.zeros(len(block), np.int64)
                    for block in blocks
                ]
            )
            for column in columns
        ]

    def take(self, slices: Slices, profiles: Ints, counts: Int64s) -> tuple[Int64s, Int64s]:
        """Return the stacks (m,) and values (n_columns, m) of slices of the blocks' samples.

        They belong to these `profiles` (p,), numbered over all blocks; `counts` (p,) are their samples.
        """
        stacks = np.empty(counts.sum(), np.int64)
        self._stacks.take(slices, stacks)
        values = np.empty((len(self._values), len(stacks)), np.int64)
        first = values[0] if self._begins_with_first else np.empty_like(stacks)
        self._first.take(slices, first)
        for row in range(self._begins_with_first, len(values)):
            ratios = self._ratios[row][profiles]
            if self._values[row].is_zero:
                np.multiply(first, np.repeat(ratios, counts), out=values[row])
                continue
            self._values[row].take(slices, values[row])
            if ratios.any():
                values[row] += first * np.repeat(ratios, counts)
        return stacks, values


def _places(stack_counts: Int64s, value_counts: Int64s) -> tuple[Int64s, Int64s]:
    """Return the sample and the sample type of each value, from the samples and values that profiles have."""
    begins, totals = offsets_of(value_counts)[:-1], offsets_of(stack_counts)[:-1]
    within = np.arange(value_counts.sum()) - np.repeat(begins, value_counts)
    n_types = np.repeat(value_counts // np.maximum(stack_counts, 1), value_counts)
    rows, columns = np.divmod(within, n_types)
    return np.repeat(totals, value_counts) + rows, columns
