"""The shelf: the rows of all services that a worker has, in memory as far as there is room, and on disk.

Each worker has those of the services that are its own (see `workers`). What was used least leaves the memory
first, and is taken from disk when it is wanted again, or else from the blobs.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from ctypes import c_int64
from pathlib import Path

from pprof_merge import Limits

from pgo_collector.engine import snapshot
from pgo_collector.engine.rows import Rows

_SUFFIX = ".rows"


class Shelf:
    """Rows by owner, which is `service/type`. They take `most_bytes` of memory, and lie in `folder`.

    Snapshots are made and read by one version of the engine only.
    """

    def __init__(self, limits: Limits, engine: str) -> None:
        self.most_bytes = 0
        self.folder = Path()
        # How many bytes of memory they take; maybe in memory that another process reads.
        self.taken = c_int64()
        self._limits = limits
        self._engine = engine
        self._rows: OrderedDict[str, Rows] = OrderedDict()
        # How many profiles the snapshot of each has.
        self._saved: dict[str, int] = {}
        # With how many profiles each had how many bytes, which takes long to add up.
        self._sizes: dict[str, tuple[int, int]] = {}

    def rows(self, owner: str) -> Rows:
        """Those of an owner; empty ones, if none are kept."""
        if owner not in self._rows:
            kept = snapshot.load(self._engine, self._path(owner))
            self._rows[owner] = kept or Rows(self._limits)
            self._saved[owner] = len(self._rows[owner].collection)
        self._rows.move_to_end(owner)
        return self._rows[owner]

    def drop(self, owner: str) -> None:
        """Keeps them no more, nowhere."""
        if owner in self._rows:
            self.taken.value -= self._size(owner)
            del self._rows[owner]
            self._sizes.pop(owner, None)
        self._path(owner).unlink(missing_ok=True)

    def make_room(self) -> None:
        """Puts those that were used least on disk, until what is left has room."""
        sizes = {owner: self._size(owner) for owner in self._rows}
        total = sum(sizes.values())
        for owner, size in sizes.items():
            if total <= self.most_bytes:
                break
            with suppress(OSError):  # then the blobs are read again
                self._save(owner)
            del self._rows[owner]
            total -= size
        self.taken.value = total

    def save(self) -> None:
        """Puts all on disk that isn't there. Raises OSError."""
        for owner in self._rows:
            self._save(owner)

    def _size(self, owner: str) -> int:
        collection = self._rows[owner].collection
        count, size = self._sizes.get(owner, (0, 0))
        if count != len(collection):
            size = collection.nbytes
            self._sizes[owner] = len(collection), size
        return size

    def _save(self, owner: str) -> None:
        rows = self._rows[owner]
        count = len(rows.collection)
        if count != self._saved[owner]:
            snapshot.save(rows, self._engine, self._path(owner))
            self._saved[owner] = count

    def _path(self, owner: str) -> Path:
        return self.folder / f"{owner.replace('/', '.')}{_SUFFIX}"
