"""Rows on disk, so that a worker needn't decode again what one before it has.

There are two files: one to which segments are only ever added, and a tail, which has what came since the last
of them and is written anew until there is enough for another. Both are a cache: what is damaged, or another
version's, is as good as none, and so is what comes after it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from errno import EIO
from mmap import ACCESS_READ, ALLOCATIONGRANULARITY, mmap
from pathlib import Path
from typing import NamedTuple

from pprof_merge import Segment

from pgo_collector.engine.packing import pack, unpack
from pgo_collector.engine.rows import Rows

# So many profiles are worth a segment, and so is so much memory. A crash costs no more than them.
SEGMENT = 128
_SEGMENT_BYTES = 4 << 20


class _Found(NamedTuple):
    """A segment in a file: of how many bytes, and with which digest they begin."""

    segment: Segment
    size: int
    digest: bytes


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

    @property
    def is_segment_due(self) -> bool:
        """Whether enough has come since the last segment for another."""
        collection = self._rows.collection
        return len(collection) - self._mark.profiles >= SEGMENT or collection.own_nbytes >= _SEGMENT_BYTES

    def read(self) -> None:
        """Gives the rows, which have nothing yet, what the files have.

        Traces are read where they lie, in memory that is mapped to the file: the kernel fills it, and takes
        it back when it needs it.
        """
        collection = self._rows.collection
        # A file that is empty can't be mapped: that is the ValueError.
        with suppress(OSError, ValueError):
            packed = self._mapped(0)
            while found := self._next(packed[self._end :]):
                collection.grow(found.segment)
                self._end, self._last = self._end + found.size, found.digest
        self._mark = collection.mark
        with suppress(OSError):
            if found := self._next(memoryview(self._tail.read_bytes())):
                collection.grow(found.segment)
        self._n_saved = len(collection)

    def save(self) -> None:
        """Puts on disk what isn't there. Raises OSError."""
        collection = self._rows.collection
        if not self.n_unsaved:
            return
        packed = pack((self._engine, self._last, collection.since(self._mark)))
        if self.is_segment_due:
            self._append(packed)
            self._tail.unlink(missing_ok=True)
        else:
            self._replace_tail(packed)
        self._n_saved = len(collection)

    def delete(self) -> None:
        """Deletes the files. Raises OSError."""
        self._tail.unlink(missing_ok=True)
        self._segments.unlink(missing_ok=True)

    def _mapped(self, begin: int) -> memoryview:
        """The file of segments from there on. Raises OSError, or ValueError where there is nothing."""
        skipped = begin % ALLOCATIONGRANULARITY
        with self._segments.open("rb") as file:
            return memoryview(mmap(file.fileno(), 0, access=ACCESS_READ, offset=begin - skipped))[skipped:]

    def _next(self, packed: memoryview) -> _Found | None:
        """The segment that is packed at the beginning, if it is good and the next one."""
        unpacked = unpack(packed)
        if unpacked is not None:
            match unpacked.content:
                case [self._engine, self._last, Segment() as segment]:
                    return _Found(segment, unpacked.size, unpacked.digest)
        return None

    def _append(self, packed: list[bytes | memoryview]) -> None:
        """Writes a segment, whose traces from then on are used from the file, and take no memory."""
        try:
            with self._segments.open("ab") as file:
                file.truncate(self._end)  # to what is good
                file.writelines(packed)
            found = self._next(self._mapped(self._end))
        except OSError:
            with suppress(OSError):
                os.truncate(self._segments, self._end)
            raise
        if found is None:
            raise OSError(EIO, "what was written can't be read", str(self._segments))
        self._rows.collection.settle(found.segment)
        self._end, self._last = self._end + found.size, found.digest
        self._mark = self._rows.collection.mark

    def _replace_tail(self, packed: list[bytes | memoryview]) -> None:
        part = self._tail.with_suffix(".part")
        try:
            with part.open("wb") as file:
                file.writelines(packed)
            part.replace(self._tail)
        finally:
            part.unlink(missing_ok=True)
