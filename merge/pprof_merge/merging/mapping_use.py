"""Which mappings the samples of a profile use, and as what: `Dictionary` knows a mapping by its key alone.

A mapping with its attributes is a row of int64: its number in the dictionary; its start, limit and offset,
which are unsigned; the numbers of its file name and build id; and its four flags, as bits from the lowest.
"""

from __future__ import annotations

import numpy as np

from pprof_merge.codec.batch import Batch
from pprof_merge.columns.ragged import first_appearance
from pprof_merge.profile import Int64s, Ints, Mappings

# The columns of such rows.
NUMBER, _, _, _, FILENAME, BUILD_ID, _ = COLUMNS = range(7)
_FLAGS = np.arange(4)


def rows_of(numbers: Int64s, mappings: Mappings, texts: Int64s) -> Int64s:
    """Mappings with these numbers, as such rows (n, 7); `texts` are the numbers of their strings."""
    columns = (
        numbers,
        mappings.start.view(np.int64),
        mappings.limit.view(np.int64),
        mappings.offset.view(np.int64),
        texts[mappings.filename],
        texts[mappings.build_id],
        mappings.flags @ (1 << _FLAGS),
    )
    return np.stack(columns, axis=1)


def mappings_of(rows: Int64s) -> Mappings:
    """Such rows, as mappings."""
    _, start, limit, offset, filename, build_id, flags = rows.T.copy()
    return Mappings(
        start=start.view(np.uint64),
        limit=limit.view(np.uint64),
        offset=offset.view(np.uint64),
        filename=filename,
        build_id=build_id,
        flags=flags[:, None] >> _FLAGS & 1 != 0,
    )


def translated(rows: Int64s, numbers: Int64s, texts: Int64s) -> Int64s:
    """The same rows with other numbers of mappings and strings."""
    number, start, limit, offset, filename, build_id, flags = rows.T
    columns = (numbers[number], start, limit, offset, texts[filename], texts[build_id], flags)
    return np.stack(columns, axis=1)


class MappingUse:
    """Which mappings the profiles of a batch use."""

    def __init__(self, batch: Batch, frames: Ints, frame_offsets: Int64s, numbers: Int64s) -> None:
        self._offsets = batch.mapping_offsets
        self._mapping_of = batch.locations.mapping
        self._frames, self._frame_offsets = frames, frame_offsets
        self._numbers = numbers.tolist()
        is_used = np.zeros(len(batch.locations), np.bool_)
        is_used[frames] = True
        mapped = np.zeros(len(numbers) + 1, np.bool_)  # one more, for -1: no mapping
        mapped[self._mapping_of[is_used]] = True
        self._is_used = mapped.tolist()

    def of(self, profile: int) -> list[int]:
        """Rows of the batch's mappings: the first of a profile, if it has one; and those that its samples
        use, of each number the one that is used first.
        """
        rows = range(self._offsets[profile], self._offsets[profile + 1])
        used = [row for row in rows if self._is_used[row]]
        if len({self._numbers[row] for row in used}) < len(used):
            used = self._in_order(profile)
        first_use: dict[int, int] = {}
        for row in used:
            first_use.setdefault(self._numbers[row], row)
        return [*rows[:1], *first_use.values()]

    def _in_order(self, profile: int) -> list[int]:
        """The rows of the mappings that the samples of a profile use, in the order of first use."""
        frames = self._frames[self._frame_offsets[profile] : self._frame_offsets[profile + 1]]
        mapped = self._mapping_of[frames]
        return list(first_appearance(mapped[mapped >= 0])[0].tolist())
