"""Mappings with all their attributes. A `Dictionary` numbers mappings by their keys, which lack addresses and
flags; a merge needs those of the profile that uses the mapping first.

Such a mapping is a row of seven int64: its number in the dictionary; its start, limit and offset, as uint64;
the string numbers of its file name and build id; and its four flags, as bits, the first flag lowest.
"""

from __future__ import annotations

import numpy as np

from pprof_merge.codec.batch import Batch
from pprof_merge.columns.ragged import first_appearance
from pprof_merge.profile import Int64s, Ints, Mappings

# The columns of these rows.
NUMBER, _, _, _, FILENAME, BUILD_ID, _ = COLUMNS = range(7)
_FLAGS = np.arange(4)


def mapping_rows(numbers: Int64s, mappings: Mappings, string_numbers: Int64s) -> Int64s:
    """Return mappings as rows (n, 7).

    `numbers` (n,) are the mappings' numbers, `string_numbers` those of the strings that mappings refer to.
    """
    columns = (
        numbers,
        mappings.start.view(np.int64),
        mappings.limit.view(np.int64),
        mappings.offset.view(np.int64),
        string_numbers[mappings.filename],
        string_numbers[mappings.build_id],
        mappings.flags @ (1 << _FLAGS),
    )
    return np.stack(columns, axis=1)


def mappings_from_rows(rows: Int64s) -> Mappings:
    """Return the mappings of rows (n, 7)."""
    _, start, limit, offset, filename, build_id, flags = rows.T.copy()
    return Mappings(
        start=start.view(np.uint64),
        limit=limit.view(np.uint64),
        offset=offset.view(np.uint64),
        filename=filename,
        build_id=build_id,
        flags=flags[:, None] >> _FLAGS & 1 != 0,
    )


def renumbered(rows: Int64s, numbers: Int64s, string_numbers: Int64s) -> Int64s:
    """Return the rows with mapping m replaced by numbers[m], and string s by string_numbers[s]."""
    number, start, limit, offset, filename, build_id, flags = rows.T
    names = string_numbers[filename], string_numbers[build_id]
    return np.stack((numbers[number], start, limit, offset, *names, flags), axis=1)


class MappingUse:
    """Which mappings the profiles of a batch use."""

    def __init__(self, batch: Batch, frames: Ints, frame_offsets: Int64s, numbers: Int64s) -> None:
        """Find the mappings that frames are in.

        `frames` are the locations of all samples' stacks, ragged by profile; `numbers` are those of the
        batch's mappings.
        """
        self._offsets = batch.mapping_offsets
        self._mapping_of = batch.locations.mapping
        self._frames, self._frame_offsets = frames, frame_offsets
        self._numbers = numbers.tolist()
        is_used = np.zeros(len(batch.locations), np.bool_)
        is_used[frames] = True
        has_frames = np.zeros(len(numbers) + 1, np.bool_)  # the last is for -1: no mapping
        has_frames[self._mapping_of[is_used]] = True
        self._is_used = has_frames.tolist()

    def rows_of(self, profile: int) -> list[int]:
        """Return rows of the batch's mappings: the profile's first mapping, if any, then each that it uses.

        Of several mappings with one number, only the one that samples use first is returned.
        """
        rows = range(self._offsets[profile], self._offsets[profile + 1])
        used = [row for row in rows if self._is_used[row]]
        if len({self._numbers[row] for row in used}) < len(used):
            used = self._in_order_of_use(profile)
        first_use: dict[int, int] = {}
        for row in used:
            first_use.setdefault(self._numbers[row], row)
        return [*rows[:1], *first_use.values()]

    def _in_order_of_use(self, profile: int) -> list[int]:
        """Return the rows of the mappings that the profile's samples use, in the order of first use."""
        frames = self._frames[self._frame_offsets[profile] : self._frame_offsets[profile + 1]]
        mapped = self._mapping_of[frames]
        return list(first_appearance(mapped[mapped >= 0])[0].tolist())
