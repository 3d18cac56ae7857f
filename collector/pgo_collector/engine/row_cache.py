"""The row cache: a worker's decoded profiles, in memory and on disk, so that a merge reads only new blobs."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from errno import EIO
from hashlib import sha256
from mmap import ACCESS_READ, ALLOCATIONGRANULARITY, mmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pprof_merge import Collection, Limits, Profile, ProfileError
from pprof_merge.arrays import Int64s
from pprof_merge.codec import StepTimes
from pprof_merge.merging import EVERY_REQUEST, Batch, Entries, PackedSegment, RequestIds, Segment

from pgo_collector.engine.blob_columns import BlobColumns
from pgo_collector.engine.packing import pack, pack_tightly, unpack, unpack_tight
from pgo_collector.engine.recent_profiles import RECENT
from pgo_collector.errors import StorageFails
from pgo_collector.model.services import is_several

# A segment is written to disk once it has this many new profiles, or they take this many bytes. A crash loses
# less than that.
SEGMENT_PROFILES = 128
_SEGMENT_BYTES = 4 << 20
# The part of the memory for rows from which on there is no room for more: to read those of one service may
# mean to drop those of another.
ROWS_FULL = 0.75
# How the files of several services begin, and how many of them stay: two for each set of services.
_SEVERAL = "+"
_MOST_SET_FILES = 64


class Rows:
    """The decoded profiles of one service and type, without `REQUEST_LABELS` unless with `every_label`.

    With `requests`, they only have the samples of these.
    """

    def __init__(
        self, limits: Limits, *, every_label: bool = False, requests: RequestIds = EVERY_REQUEST
    ) -> None:
        self.collection = Collection(limits, Batch(limits, every_label=every_label, requests=requests))

    def missing(self, blobs: BlobColumns) -> Int64s:
        """Return the rows of `blobs` (n,) whose profiles aren't here."""
        return np.flatnonzero(self.numbers(blobs) < 0)

    def load(
        self,
        blobs: BlobColumns,
        rows: Int64s,
        times: StepTimes | None = None,
        recent: Callable[[bytes], Profile | None] = lambda _: None,
    ) -> dict[int, str]:
        """Read and decode the blobs in these rows (n,) of `blobs`; add what that took to `times`.

        A profile that `recent` returns for a digest was read already.
        Returns the reason, by row, for each one that can't be read or isn't what was written. Raises
        StorageFails.
        """
        unreadable: dict[int, str] = {}
        failures: list[StorageFails] = []
        numbers = rows.tolist()
        known = {row: recent(bytes(blobs.digests[row])) for row in numbers}
        unread = [row for row in numbers if known[row] is None]

        def contents() -> Iterator[bytes | Profile]:
            found = blobs.storage.read_all(map(blobs.name, unread))
            try:
                for row in numbers:
                    content = known.pop(row) or next(found)
                    if isinstance(content, OSError):
                        unreadable[row] = reason(content)
                    yield b"" if isinstance(content, OSError) else content
            except StorageFails as error:  # what was read before must still be added
                failures.append(error)

        for row, taken in zip(numbers, self.collection.extend(contents(), times), strict=False):
            if isinstance(taken, ProfileError):
                unreadable.setdefault(row, str(taken))
            elif self.collection.digest(taken) != bytes(blobs.digests[row]):
                unreadable[row] = "the content is not what its name says"
        for failure in failures:
            raise failure
        return unreadable

    def has_any_of(self, segment: Segment) -> bool:
        """Return whether a profile of a segment is here."""
        return bool((self.collection.find(segment.profiles.digests) >= 0).any())

    def numbers(self, blobs: BlobColumns) -> Int64s:
        """Return the number in the collection of each blob's profile (n,); -1 for one that isn't here."""
        return self.collection.find(blobs.digests)


def reason(error: Exception) -> str:
    """Return an error's message, without the path that an OSError puts in front of it."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


class _Found(NamedTuple):
    """A segment in a file, its size in bytes, and the digest with which it begins."""

    segment: PackedSegment
    size: int
    digest: bytes


class RowFile:
    """The two files of rows, at `path` with the suffixes .rows and .tail.

    .rows has segments, each with the digest of the one before. .tail has the profiles since the last segment,
    and is replaced as a whole. Files that another version of the `engine` wrote are ignored.

    What a segment adds to the dictionary is compressed, since it is read into memory once. Its profiles are
    used where they are, so they are packed without compression.
    """

    def __init__(self, path: Path, engine: str, rows: Rows) -> None:
        self._segments = path.with_name(f"{path.name}.rows")
        self._tail = path.with_name(f"{path.name}.tail")
        self._engine = engine
        self._rows = rows
        # The offset of the next segment, the digest of the last one, and the first profile of the next one.
        self._end, self._last = 0, b""
        self._mark = rows.collection.mark
        # The number of profiles that are in one of the files.
        self._n_saved = 0

    @property
    def n_unsaved(self) -> int:
        """Return how many profiles aren't on disk."""
        return len(self._rows.collection) - self._n_saved

    @property
    def is_segment_due(self) -> bool:
        """Return whether there are enough new profiles for another segment."""
        collection = self._rows.collection
        return (
            len(collection) - self._mark.profiles >= SEGMENT_PROFILES
            or collection.own_nbytes >= _SEGMENT_BYTES
        )

    def read(self) -> None:
        """Read the files into the rows, which must be empty.

        Traces stay in the mapped file: the kernel loads its pages, and takes them back when memory runs
        short.
        """
        collection = self._rows.collection
        # ValueError: an empty file can't be mapped.
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
        """Write the profiles that aren't on disk. Raises OSError."""
        collection = self._rows.collection
        if not self.n_unsaved:
            return
        entries, profiles = collection.since(self._mark).packed()
        packed = pack((self._engine, self._last, pack_tightly(entries), profiles))
        if self.is_segment_due:
            self._append(packed)
            self._tail.unlink(missing_ok=True)
        else:
            self._replace_tail(packed)
        self._n_saved = len(collection)

    def delete(self) -> None:
        """Delete the files. Raises OSError."""
        self._tail.unlink(missing_ok=True)
        self._segments.unlink(missing_ok=True)

    def _mapped(self, begin: int) -> memoryview:
        """Map the file of segments from `begin` on. Raises OSError, or ValueError if the file is empty."""
        skipped = begin % ALLOCATIONGRANULARITY
        with self._segments.open("rb") as file:
            return memoryview(mmap(file.fileno(), 0, access=ACCESS_READ, offset=begin - skipped))[skipped:]

    def _next(self, packed: memoryview) -> _Found | None:
        """Return the segment at the beginning if it is undamaged and follows the last one; otherwise None."""
        unpacked = unpack(packed)
        if unpacked is not None:
            match unpacked.content:
                case [self._engine, self._last, bytes() as tight, list() as profiles]:
                    match unpack_tight(tight):
                        case Entries() as entries:
                            segment = PackedSegment(entries, profiles)
                            return _Found(segment, unpacked.size, unpacked.digest)
        return None

    def _append(self, packed: list[bytes | memoryview]) -> None:
        """Append a segment. Its traces are then used from the mapped file, and their memory is freed."""
        try:
            with self._segments.open("ab") as file:
                file.truncate(self._end)  # drops what follows the last good segment
                file.writelines(packed)
            found = self._next(self._mapped(self._end))
        except OSError:
            with suppress(OSError):
                os.truncate(self._segments, self._end)
            raise
        if found is None:
            raise OSError(EIO, "the segment that was written can't be read back", str(self._segments))
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
    """The rows of a worker by owner, `service/type`: at most `most_bytes` in memory, all of them in `folder`.

    Of several services together there may be very many sets: the files of those that were read last stay.

    The owner that was used longest ago leaves memory first. Files of another version of the engine are
    ignored.
    """

    def __init__(self, limits: Limits, engine: str) -> None:
        self.most_bytes = 0
        self.folder = Path()
        self.used_bytes = 0  # that all rows take, as of the last call that bounds them
        self._limits = limits
        self._engine = engine
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        # The bytes of each owner's rows when they were last measured, and the sum. With thousands of owners,
        # measuring all of them after each call would take longer than the call.
        self._sizes: dict[str, int] = {}
        self._total = 0

    def rows(self, owner: str, *, is_use: bool = True) -> Rows:
        """Return an owner's rows, read from disk if they aren't in memory; empty ones if there are none.

        Unless it `is_use`, rows that are in memory leave it as early as before.
        """
        if owner not in self._entries:
            self._entries[owner] = entry = self._new(owner)
            entry.file.read()
            self._measure(owner)
        if is_use:
            self._entries.move_to_end(owner)
        return self._entries[owner].rows

    def load(
        self, owner: str, blobs: BlobColumns, times: StepTimes | None = None, *, is_use: bool = True
    ) -> tuple[Int64s, dict[int, str]]:
        """Read the blobs that an owner's rows don't have; return what `Rows.numbers` and `Rows.load` return.

        New profiles are written to disk in segments on the way, so that memory doesn't grow with the blobs.
        """
        rows = self.rows(owner, is_use=is_use)
        unreadable: dict[int, str] = {}
        numbers = rows.numbers(blobs)
        new = np.flatnonzero(numbers < 0)
        for part in np.array_split(new, max(1, len(new) // SEGMENT_PROFILES)):
            unreadable |= rows.load(blobs, part, times, RECENT.take)
            self._save_segment(owner)
        # Of tens of thousands, few are new, and to look for all of them again takes milliseconds.
        numbers[new] = rows.collection.find(blobs.digests[new])
        return numbers, unreadable

    def add(self, owner: str, profiles: Sequence[Profile]) -> None:
        """Add profiles that were just read to an owner's rows, unless memory for rows is short."""
        if self.used_bytes > ROWS_FULL * self.most_bytes:
            return
        rows = self.rows(owner, is_use=False)
        digests = np.frombuffer(b"".join(profile.digest for profile in profiles), np.uint8).reshape(-1, 32)
        new = np.flatnonzero(rows.collection.find(digests) < 0).tolist()
        for _ in rows.collection.extend(profiles[number] for number in new):
            pass
        self.enforce_budget(owner)

    def absorb(self, owner: str, segment: Segment) -> None:
        """Add the profiles of another process's segment to an owner's rows, unless some are here by now."""
        rows = self.rows(owner)
        if not rows.has_any_of(segment):
            other = Collection(self._limits)
            other.grow(segment.packed())
            rows.collection.absorb(other)

    def delete(self, owner: str) -> None:
        """Delete an owner's rows from memory and disk. Raises OSError."""
        entry = self._entries.pop(owner, None) or self._new(owner)
        self._measure(owner)
        self.used_bytes = self._total
        entry.file.delete()

    def enforce_budget(self, owner: str) -> None:
        """Write an owner's new rows to disk if a segment is due, then drop from memory, after writing them to
        disk, the rows that were used longest ago, until the rest fits into `most_bytes`.
        """
        if owner in self._entries:
            self._save_segment(owner)
        self._measure(owner)
        while self._total > self.most_bytes and self._entries:
            least_used = next(iter(self._entries))
            self._save(least_used)
            del self._entries[least_used]
            self._measure(least_used)
        self.used_bytes = self._total

    def save(self) -> None:
        """Write everything that isn't on disk. Raises OSError."""
        for entry in self._entries.values():
            entry.file.save()

    def _measure(self, owner: str) -> None:
        """Measure the memory that an owner's rows take."""
        entry = self._entries.get(owner)
        self._total -= self._sizes.pop(owner, 0)
        if entry is not None:
            self._sizes[owner] = size = entry.rows.collection.nbytes
            self._total += size

    def _save_segment(self, owner: str) -> None:
        if self._entries[owner].file.is_segment_due:
            self._save(owner)

    def _save(self, owner: str) -> None:
        with suppress(OSError):  # the blobs are then read again
            self._entries[owner].file.save()

    def _new(self, owner: str) -> _Entry:
        rows = Rows(self._limits)
        name = owner.replace("/", ".")
        if is_several(owner):
            name = f"{_SEVERAL}{sha256(owner.encode()).hexdigest()}"
            self._delete_old_sets()
        return _Entry(rows, RowFile(self.folder / name, self._engine, rows))

    def _delete_old_sets(self) -> None:
        """Delete the files of the sets of services that were written longest ago."""
        with suppress(OSError):  # another worker may do so, too
            files = sorted(self.folder.glob(f"{_SEVERAL}*"), key=lambda file: file.stat().st_mtime_ns)
            for file in files[:-_MOST_SET_FILES]:
                file.unlink(missing_ok=True)
