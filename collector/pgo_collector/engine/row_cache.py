"""Rows: the profiles that a worker has decoded, so that a merge reads only what is new to it."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from ctypes import c_int64
from errno import EIO
from mmap import ACCESS_READ, ALLOCATIONGRANULARITY, mmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pprof_merge import Collection, Int64s, Limits, ProfileError, Segment

from pgo_collector.engine.blob_columns import BlobColumns
from pgo_collector.engine.packing import pack, unpack

# So many profiles are worth a segment, and so is so much memory. A crash costs no more than them.
SEGMENT = 128
_SEGMENT_BYTES = 4 << 20


class Rows:
    """The profiles of one type of one service, by digest."""

    def __init__(self, limits: Limits) -> None:
        self.collection = Collection(limits)

    def new(self, blobs: BlobColumns) -> Int64s:
        """Which of the blobs weren't taken in."""
        return np.flatnonzero(self.numbers(blobs) < 0)

    def take_in(self, blobs: BlobColumns, rows: Int64s) -> dict[int, str]:
        """Reads some of the blobs; of those that can't be read, or aren't what they were, the reason."""
        unreadable: dict[int, str] = {}

        def contents() -> Iterator[bytes]:
            for row in rows.tolist():
                try:
                    yield blobs.path(row).read_bytes()
                except OSError as error:
                    unreadable[row] = reason(error)
                    yield b""

        for row, taken in zip(rows.tolist(), self.collection.extend(contents()), strict=True):
            if isinstance(taken, ProfileError):
                unreadable.setdefault(row, str(taken))
            elif self.collection.digest(taken) != bytes(blobs.digests[row]):
                unreadable[row] = "the content is not what its name says"
        return unreadable

    def numbers(self, blobs: BlobColumns) -> Int64s:
        """The number in the collection of each blob's profile; -1 where it wasn't taken in."""
        return self.collection.find(blobs.digests)


def reason(error: Exception) -> str:
    """What went wrong, without the path that an OSError puts in front of it."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


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


class _Entry(NamedTuple):
    rows: Rows
    file: RowFile


class RowCache:
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
        self._shelved: OrderedDict[str, _Entry] = OrderedDict()
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

    def take_in(self, owner: str, blobs: BlobColumns) -> dict[int, str]:
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

    def _new(self, owner: str) -> _Entry:
        rows = Rows(self._limits)
        return _Entry(rows, RowFile(self.folder / owner.replace("/", "."), self._engine, rows))
