"""Rows: the profiles that a worker has decoded, so that a merge reads only what is new to it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pprof_merge import Collection, Int64s, Limits, ProfileError

from pgo_collector.engine.stored import StoredBlobs


class Rows:
    """The profiles of one type of one service, by digest."""

    def __init__(self, limits: Limits) -> None:
        self.collection = Collection(limits)

    def new(self, blobs: StoredBlobs) -> Int64s:
        """Which of the blobs weren't taken in."""
        return np.flatnonzero(self.numbers(blobs) < 0)

    def take_in(self, blobs: StoredBlobs, rows: Int64s) -> dict[int, str]:
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

    def numbers(self, blobs: StoredBlobs) -> Int64s:
        """The number in the collection of each blob's profile; -1 where it wasn't taken in."""
        return self.collection.find(blobs.digests)


def reason(error: Exception) -> str:
    """What went wrong, without the path that an OSError puts in front of it."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
