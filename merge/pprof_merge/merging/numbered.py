"""Numbered profiles: each sample is the number of its stack, and its values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from pprof_merge.arrays import Bytes, Int32s, Int64s

# The ragged columns, with the columns that say how many rows of them each profile has.
RAGGED = {
    "stacks": "stack_counts",
    "values": "value_counts",
    "mappings": "mapping_counts",
    "inner_columns": "inner_column_counts",
}


@dataclass(frozen=True, slots=True, eq=False)
class NumberedProfiles:
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

    headers: Int32s
    times: Int64s
    durations: Int64s
    digests: Bytes
    stack_counts: Int64s
    stacks: Int32s
    value_counts: Int64s
    values: Int64s
    mapping_counts: Int64s
    mappings: Int64s
    inner_column_counts: Int64s
    inner_columns: Int32s

    def __len__(self) -> int:
        return len(self.headers)

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
