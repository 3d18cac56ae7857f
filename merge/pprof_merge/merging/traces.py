"""Traces: what is left of profiles once they are interned, as columns, so that each takes few bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from pprof_merge.profile import Bytes, Int32s, Int64s

# The columns of which a profile has some rows, and those that say how many.
RAGGED = {
    "stacks": "stack_counts",
    "values": "value_counts",
    "mappings": "mapping_counts",
    "inner_columns": "inner_column_counts",
}


@dataclass(frozen=True, slots=True, eq=False)
class Traces:
    """Those of p profiles, one profile's after another's, by the numbers of a dictionary.

    A profile's header is one of the dictionary's `headers` (p,), with its `times` and `durations` (p,) in ns;
    its `digests` (p, 32) are those of its bytes. Of the `stacks` (m,) it has `stack_counts` (p,), one a
    sample; and of the `values` `value_counts` (p,), so many a sample as the header has sample types. Samples
    whose values are all 0 are gone.

    Of `mappings` (q, 7), whose columns are in `used_mappings`, it has `mapping_counts` (p,): its first
    mapping, used or not, and then those that samples use, with the attributes at first use. Of
    `inner_columns` (r,) it has `inner_column_counts` (p,): the dictionary's numbers for the columns of its
    lines, at locations where they are more than the location's key has.
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
        """Those of no profile."""
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
        """The traces of all."""
        from_none = [cls.none(), *every]
        return cls(
            *(np.concatenate([getattr(traces, field.name) for traces in from_none]) for field in fields(cls))
        )

    @property
    def nbytes(self) -> int:
        """The memory that their arrays take."""
        return sum(getattr(self, field.name).nbytes for field in fields(self))
