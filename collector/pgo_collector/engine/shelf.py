"""The shelf: the rows of all services that a worker has, in memory as far as there is room, and on disk.

Each worker has those of the services that are its own (see `workers`). What was used least leaves the memory
first, and is taken from disk when it is wanted again, or else from the blobs.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from ctypes import c_int64
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pprof_merge import Limits

from pgo_collector.engine.row_file import SEGMENT, RowFile
from pgo_collector.engine.rows import Rows
from pgo_collector.engine.stored import StoredBlobs


class _Shelved(NamedTuple):
    rows: Rows
    file: RowFile


class Shelf:
    """Rows by owner, which is `service/type`. They take `most_bytes` of memory, and lie in `folder`.

    What is on disk is made and read by one version of the engine only.
    """

    def __init__(self, limits: Limits, engine: str) -> None:
        self.most_bytes = 0
        self.folder = Path()
        # How many bytes of memory they take; maybe in memory that another process reads.
        self.taken = c_int64()
        self._limits = limits
        self._engine = engine
        self._shelved: OrderedDict[str, _Shelved] = OrderedDict()
        # The memory that each of them took when it was last looked at, and the sum: with thousands of owners,
        # to ask all of them after each call would take longer than the call.
        self._sizes: dict[str, int] = {}
        self._total = 0

    def rows(self, owner: str) -> Rows:
        """Those of an owner; empty ones, if none are kept."""
        if owner not in self._shelved:
            self._shelved[owner] = shelved = self._new(owner)
            shelved.file.read()
            self._measure(owner)
        self._shelved.move_to_end(owner)
        return self._shelved[owner].rows

    def take_in(self, owner: str, blobs: StoredBlobs) -> dict[int, str]:
        """Has an owner's rows take in the blobs that are new; see `Rows.take_in`.

        What comes goes to disk on the way, so that any number of blobs takes no more memory than some.
        """
        rows = self.rows(owner)
        unreadable: dict[int, str] = {}
        new = rows.new(blobs)
        for part in np.array_split(new, max(1, len(new) // SEGMENT)):
            unreadable |= rows.take_in(blobs, part)
            self._save_segment(owner)
        return unreadable

    def drop(self, owner: str) -> None:
        """Keeps them no more, nowhere. Raises OSError."""
        shelved = self._shelved.pop(owner, None) or self._new(owner)
        self._measure(owner)
        self.taken.value = self._total
        shelved.file.delete()

    def keep(self, owner: str) -> None:
        """Puts what has come to an owner's rows on disk, if it is enough to be worth it; and those of owners
        that were used least, until what is left has room.
        """
        if owner in self._shelved:
            self._save_segment(owner)
        self._measure(owner)
        while self._total > self.most_bytes and self._shelved:
            least_used = next(iter(self._shelved))
            self._save(least_used)
            del self._shelved[least_used]
            self._measure(least_used)
        self.taken.value = self._total

    def save(self) -> None:
        """Puts all on disk that isn't there. Raises OSError."""
        for shelved in self._shelved.values():
            shelved.file.save()

    def _measure(self, owner: str) -> None:
        """Looks how much memory the rows of an owner take."""
        shelved = self._shelved.get(owner)
        self._total -= self._sizes.pop(owner, 0)
        if shelved is not None:
            self._sizes[owner] = size = shelved.rows.collection.nbytes
            self._total += size

    def _save_segment(self, owner: str) -> None:
        if self._shelved[owner].file.is_segment_due:
            self._save(owner)

    def _save(self, owner: str) -> None:
        with suppress(OSError):  # then the blobs are read again
            self._shelved[owner].file.save()

    def _new(self, owner: str) -> _Shelved:
        rows = Rows(self._limits)
        return _Shelved(rows, RowFile(self.folder / owner.replace("/", "."), self._engine, rows))
