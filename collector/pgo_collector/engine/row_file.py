"""Rows on disk, so that a worker needn't decode again what one before it has.

There are two files: one to which segments are only ever added, and a tail, which has what came since the last
of them and is written anew until there is enough for another. Both are a cache: what is damaged, or another
version's, is as good as none, and so is what comes after it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from mmap import ACCESS_READ, mmap
from pathlib import Path

from pprof_merge import Segment

from pgo_collector.engine.packing import Unpacked, pack, unpack
from pgo_collector.engine.rows import Rows

# So many profiles are worth a segment. A crash costs no more than them.
SEGMENT = 128


class RowFile:
    """The files at `path`, each with a suffix, of some rows; the `engine` is the version that makes them."""

    def __init__(self, path: Path, engine: str, rows: Rows) -> None:
        self._segments = path.with_name(f"{path.name}.rows")
        self._tail = path.with_name(f"{path.name}.tail")
        self._engine = engine
        self._rows = rows
        # Where the next segment goes, the digest of that before it, and what the next begins with.
        self._end, self._last = 0, b""
        self._mark = rows.collection.mark
        # How many profiles are in either file.
        self._n_saved = 0

    @property
    def n_unsaved(self) -> int:
        """How many profiles aren't on disk."""
        return len(self._rows.collection) - self._n_saved

    def read(self) -> None:
        """Gives the rows, which have nothing yet, what the files have.

        Traces are read where they lie, in memory that is mapped to the file: the kernel fills it, and takes
        it back when it needs it.
        """
        # A file that is empty can't be mapped: that is the ValueError.
        with suppress(OSError, ValueError), self._segments.open("rb") as file:
            packed = memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))
            while segment := self._grow(packed[self._end :]):
                self._end += segment.size
                self._last = segment.digest
        self._mark = self._rows.collection.mark
        with suppress(OSError):
            self._grow(memoryview(self._tail.read_bytes()))
        self._n_saved = len(self._rows.collection)

    def save(self) -> None:
        """Puts on disk what isn't there. Raises OSError."""
        collection = self._rows.collection
        if not self.n_unsaved:
            return
        packed = pack((self._engine, self._last, collection.since(self._mark)))
        if len(collection) - self._mark.profiles < SEGMENT:
            self._replace_tail(packed)
        else:
            self._append(packed)
            self._last = bytes(packed[0])
            self._mark = collection.mark
            self._tail.unlink(missing_ok=True)
        self._n_saved = len(collection)

    def delete(self) -> None:
        """Deletes the files. Raises OSError."""
        self._tail.unlink(missing_ok=True)
        self._segments.unlink(missing_ok=True)

    def _grow(self, packed: memoryview) -> Unpacked | None:
        """Gives the rows the segment that is packed at the beginning, if it is good and the next one."""
        unpacked = unpack(packed)
        if unpacked is not None:
            match unpacked.content:
                case [self._engine, self._last, Segment() as segment]:
                    self._rows.grow(segment)
                    return unpacked
        return None

    def _append(self, packed: list[bytes | memoryview]) -> None:
        try:
            with self._segments.open("ab") as file:
                file.truncate(self._end)  # to what is good
                file.writelines(packed)
        except OSError:
            with suppress(OSError):
                os.truncate(self._segments, self._end)
            raise
        self._end += sum(map(len, packed))

    def _replace_tail(self, packed: list[bytes | memoryview]) -> None:
        part = self._tail.with_suffix(".part")
        try:
            with part.open("wb") as file:
                file.writelines(packed)
            part.replace(self._tail)
        finally:
            part.unlink(missing_ok=True)
