"""The varints of many records, side by side: what `fields` reads columns from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pprof_merge.errors import MalformedProfile
from pprof_merge.profile import Int64s
from pprof_merge.records import Bodies
from pprof_merge.varint import decode_varints


class IrregularLayout(Exception):
    """The records are not laid out as profilers do it; whether they are malformed is open."""


class VarintTable(NamedTuple):
    """All varints of some records: values, first bytes (one more, the end of all), and each record's end
    among them and in bytes.
    """

    values: Int64s
    starts: Int64s
    ends: Int64s
    byte_ends: Int64s
    bodies: list[bytes]

    @classmethod
    def of(cls, records: Bodies) -> VarintTable:
        """Reads records that hold nothing else. Raises IrregularLayout."""
        try:
            values, starts = decode_varints(records.bodies)
        except MalformedProfile:
            raise IrregularLayout from None
        byte_ends = np.cumsum(records.sizes)
        return cls(values, starts, _index_of(starts, byte_ends), byte_ends, records.bodies)

    def only(self, rows: Int64s) -> VarintTable:
        """The same of some of the records."""
        return VarintTable.of(Bodies.of([self.bodies[row] for row in rows.tolist()]))

    @property
    def counts(self) -> Int64s:
        """How many varints each record has."""
        return np.diff(self.ends, prepend=0)

    def at(self, positions: Int64s, after: Int64s, before: Int64s) -> Int64s:
        """Which varint starts at each byte position, between those two.

        Most are as far from the one, or from the other, as the first of them is.
        """
        if not positions.size:
            return positions
        last = len(self.starts) - 1
        first = int(_index_of(self.starts, positions[:1])[0])
        found: Int64s = (after + (first - after[0])).clip(0, last)
        wrong = (self.starts.take(found) != positions).nonzero()[0]
        if wrong.size:
            found[wrong] = (before[wrong] - (before[0] - first)).clip(0, last)
            wrong = wrong[self.starts.take(found[wrong]) != positions[wrong]]
            found[wrong] = _index_of(self.starts, positions[wrong])
        return found


def _index_of(starts: Int64s, positions: Int64s) -> Int64s:
    index = np.searchsorted(starts, positions)
    if (starts.take(index, mode="clip") != positions).any():
        raise IrregularLayout
    return index
