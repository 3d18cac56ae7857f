"""Times of profiles that don't say when they were taken, while they are being stored.

Such a profile gets the time at which it comes, and its blob has that in its name. If the attempt to store it
fails in the end, its blob may stay, and a retry must not make a second one under another time: so the time is
an object in an area beside the blobs, from before the blob is stored until it is counted.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from contextlib import suppress

from pgo_collector.model.blob_names import BlobName
from pgo_collector.model.series import Series
from pgo_collector.storage.storage import UNDATED, Storage


class UndatedTimes:
    """The times in a storage of blobs. Methods block, and raise OSError."""

    def __init__(self, blobs: Storage) -> None:
        self._storage = blobs.area(UNDATED)

    def take(self, series: Series, digest: str) -> int:
        """Return the time of the attempts to store a profile, in ns since 1970; of the first one, it is now.

        No other transaction may be about the same profile: see `Database.serialize`.
        """
        name, now = _object(series, digest), time.time_ns()
        try:
            self._storage.add(name, str(now).encode())
        except FileExistsError:
            return int(self._storage.read(name))
        return now

    def drop(self, counted: Iterable[BlobName]) -> None:
        """Delete the times of profiles that are counted now."""
        with suppress(OSError):  # it does no harm: a retry looks into the catalog first
            self._storage.delete([_object(name.series, name.identity.digest) for name in counted])

    def drop_all(self) -> None:
        """Delete all times, when all blobs are counted."""
        for error in self._storage.delete([of.name for of in self._storage.objects()]).values():
            raise error


def _object(series: Series, digest: str) -> str:
    return hashlib.sha256(f"{series.folders} {digest}".encode()).hexdigest()
