"""Recent profiles: what this worker has decoded to validate it, until it makes rows of it.

    validate_bodies → RECENT.keep → the profile is stored → Warming → read_rows → RECENT.take

Only profiles of services whose rows this worker keeps are here, and only the last ones, since their memory is
bounded. Rows of all others are made from the blobs.
"""

from __future__ import annotations

from collections import OrderedDict
from zlib import crc32

from pprof_merge import Profile
from pprof_merge.codec import ProfileColumns

# The bytes of all profiles, and that part of a worker's memory for tasks if it is less.
_MOST_BYTES = 32 << 20
_MOST_PART = 16
_WORD = 8


def rows_owner(service: str, type_: str) -> str:
    """Return the key of a service's and type's rows, in the workers' caches and for `Workers.run_for`."""
    return f"{service}/{type_}"


def worker_of(owner: str, workers: int) -> int:
    """Return which of these workers keeps the rows of an owner: a number from 0 on."""
    return crc32(owner.encode()) % workers


class RecentProfiles:
    """The profiles by digest; the oldest ones leave first. None are kept until it is opened."""

    def __init__(self) -> None:
        self._most_bytes = self._number = 0
        self._workers = 1
        # By digest: the profile, its size in memory in bytes, and the key of its rows.
        self._profiles: OrderedDict[bytes, tuple[Profile, int, str]] = OrderedDict()
        self._size = 0

    def open(self, number: int, workers: int, task_bytes: int) -> None:
        """Keep profiles from now on, in the process of the worker with this number among all `workers`."""
        self._number, self._workers = number, workers
        self._most_bytes = min(_MOST_BYTES, task_bytes // _MOST_PART)

    def keep(self, owner: str, profile: Profile) -> None:
        """Keep a profile that was just read, until it is in the rows of `owner`, if this worker has these."""
        size = _size(profile.columns)
        if size > self._most_bytes or worker_of(owner, self._workers) != self._number:
            return
        self.take(profile.digest)
        self._profiles[profile.digest] = profile, size, owner
        self._size += size
        while self._size > self._most_bytes:
            self.take(next(iter(self._profiles)))

    def take(self, digest: bytes) -> Profile | None:
        """Return the profile with a digest, which is then gone from here; None if there is none."""
        profile, size, _ = self._profiles.pop(digest, (None, 0, ""))
        self._size -= size
        return profile

    def drop(self, owner: str) -> None:
        """Delete the profiles that are for an owner's rows."""
        for digest in [digest for digest, (_, _, key) in self._profiles.items() if key == owner]:
            self.take(digest)


def _size(columns: ProfileColumns) -> int:
    """Return about how many bytes of memory the columns of a profile take that was just read."""
    rows = 5 * (columns.n_locations + columns.n_functions) + 3 * columns.n_lines + 10 * columns.n_mappings
    samples = columns.n_samples * (2 + columns.n_types) + columns.n_frames + 4 * columns.n_labels
    # The reader's notes of where records and strings are take about as much as the text.
    return _WORD * (rows + samples) + 3 * len(columns.text)


# The profiles in this process.
RECENT = RecentProfiles()
