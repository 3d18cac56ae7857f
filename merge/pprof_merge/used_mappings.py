"""Which mappings the samples of a profile use, and as what: `Dictionary` knows a mapping by its key alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pprof_merge.batch import Batch
from pprof_merge.profile import Int64s, Ints
from pprof_merge.ragged import first_appearance


class Mapping(NamedTuple):
    """One mapping with its attributes; file name and build id are numbers of strings."""

    start: int
    limit: int
    offset: int
    filename: int
    build_id: int
    flags: tuple[bool, ...]

    def translated(self, texts: Int64s) -> Mapping:
        """The same with other numbers of strings."""
        return self._replace(filename=int(texts[self.filename]), build_id=int(texts[self.build_id]))


class UsedMappings:
    """Which mappings the profiles of a batch use, and with which attributes."""

    def __init__(
        self,
        batch: Batch,
        frames: Ints,
        frame_offsets: Int64s,
        attributes: Sequence[Mapping],
        numbers: Int64s,
    ) -> None:
        self._offsets = batch.mapping_offsets
        self._mapping_of = batch.locations.mapping
        self._frames, self._frame_offsets = frames, frame_offsets
        self._attributes, self._numbers = attributes, numbers.tolist()
        is_used = np.zeros(len(batch.locations), np.bool_)
        is_used[frames] = True
        mapped = np.zeros(len(attributes) + 1, np.bool_)  # one more, for -1: no mapping
        mapped[self._mapping_of[is_used]] = True
        self._is_used = mapped.tolist()

    def main(self, profile: int) -> dict[int, Mapping]:
        """The first mapping of a profile, if it has one."""
        first, end = self._offsets[profile], self._offsets[profile + 1]
        return {self._numbers[first]: self._attributes[first]} if first < end else {}

    def at_first_use(self, profile: int) -> dict[int, Mapping]:
        """The mappings that the samples of a profile use, each with the attributes of its first use."""
        rows = range(self._offsets[profile], self._offsets[profile + 1])
        used = [row for row in rows if self._is_used[row]]
        if len({self._numbers[row] for row in used}) < len(used):
            used = self._in_order(profile)
        first_use: dict[int, Mapping] = {}
        for row in used:
            first_use.setdefault(self._numbers[row], self._attributes[row])
        return first_use

    def _in_order(self, profile: int) -> list[int]:
        """The rows of the mappings that the samples of a profile use, in the order of first use."""
        frames = self._frames[self._frame_offsets[profile] : self._frame_offsets[profile + 1]]
        mapped = self._mapping_of[frames]
        return list(first_appearance(mapped[mapped >= 0])[0].tolist())
