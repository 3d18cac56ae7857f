"""Rows: the profiles that a worker has decoded, so that a merge reads only what is new to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pprof_merge import Collection, Limits, ProfileError, Segment


class Stored(NamedTuple):
    """A blob: its name, which is its path in that folder, the sha256 of the bare protobuf in it, hex, its
    series' labels, and the keys of those that a roll-up dropped.
    """

    name: str
    folder: str
    digest: str
    labels: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()


class Rows:
    """The profiles of one type of one service, by digest."""

    def __init__(self, limits: Limits) -> None:
        self.collection = Collection(limits)
        self._numbers: dict[str, int] = {}

    def take_in(self, blobs: Sequence[Stored]) -> dict[str, str]:
        """Reads the blobs that are new; of those that can't be read, or aren't what they were, the reason."""
        new = [blob for blob in blobs if blob.digest not in self._numbers]
        unreadable: dict[str, str] = {}

        def contents() -> Iterator[bytes]:
            for blob in new:
                try:
                    yield Path(blob.folder, blob.name).read_bytes()
                except OSError as error:
                    unreadable[blob.name] = reason(error)
                    yield b""

        for blob, taken in zip(new, self.collection.extend(contents()), strict=True):
            if isinstance(taken, ProfileError):
                unreadable.setdefault(blob.name, str(taken))
            elif self.collection.digest(taken).hex() != blob.digest:
                unreadable[blob.name] = "the content is not what its name says"
            else:
                self._numbers[blob.digest] = taken
        return unreadable

    def grow(self, segment: Segment) -> None:
        """Takes in a segment of rows that were as these are."""
        first = len(self.collection)
        self.collection.grow(segment)
        for number in range(first, len(self.collection)):
            self._numbers[self.collection.digest(number).hex()] = number

    def number(self, digest: str) -> int:
        """The number in the collection of a profile that was taken in."""
        return self._numbers[digest]


def reason(error: Exception) -> str:
    """What went wrong, without the path that an OSError puts in front of it."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
