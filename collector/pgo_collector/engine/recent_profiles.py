"""Recent profiles: what this worker has decoded to validate it, until it makes rows of it.

    validate_bodies → RECENT.keep → the profile is stored → Warming → read_rows → RECENT.take

Only profiles of services whose rows this worker keeps are here, and only the last ones, since their memory is
bounded. When more come, the oldest leave: as many of them become rows at once as slow no busy fleet down, for
that takes a third of the time that reading their blobs will take. Rows of all others are made from the blobs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from time import thread_time_ns
from zlib import crc32

from pprof_merge import Profile
from pprof_merge.codec import ProfileColumns

# The bytes of all profiles, and that part of a worker's memory for tasks if it is less.
_MOST_BYTES = 32 << 20
_MOST_PART = 16
# How much of it stays when the oldest leave: to number several at once takes less time than one by one.
_STAYS = 7 / 8
# The part of this process's CPU time that may go into rows of profiles that leave. With 1/16 and 1/8, a
# submit of 16 clients took a worker 0.04 and 0.08 ms more. What wasn't used is saved, up to 10 ms.
_MOST_TIME, _MOST_SAVED = 1 / 12, 10**7
_WORD = 8
# What a profile's objects take besides its columns.
_OBJECTS = 20_000

# Adds profiles that were read to the rows of an owner.
ReadNow = Callable[[str, Sequence[Profile]], None]


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
        # By digest: the profile, its size in memory in bytes, the key of its rows, and whether it is certain.
        self._profiles: OrderedDict[bytes, tuple[Profile, int, str, bool]] = OrderedDict()
        self._size = 0
        self._read_now: ReadNow = lambda *_: None
        # This process's CPU time in ns at the last look, and the part of it that may still be used.
        self._seen = 0
        self._saved = 0.0

    def open(self, number: int, workers: int, task_bytes: int, read_now: ReadNow) -> None:
        """Keep profiles from now on, in the process of the worker with this number among all `workers`."""
        self._number, self._workers = number, workers
        self._most_bytes = min(_MOST_BYTES, task_bytes // _MOST_PART)
        self._read_now = read_now

    def keep(self, owner: str, profile: Profile, *, is_certain: bool) -> None:
        """Keep a profile that was just read, until it is in the rows of `owner`, if this worker has these.

        Only if it `is_certain` that nobody refuses it any more, may it become rows before it is stored. The
        time of a body mustn't run, since this may change rows.
        """
        columns = profile.columns
        size = _size(columns)
        is_ours = worker_of(owner, self._workers) == self._number
        if not is_ours or size > self._most_bytes:
            return
        self.take(profile.digest)
        self._profiles[profile.digest] = profile, size, owner, is_certain
        self._size += size
        if self._size > self._most_bytes:
            self._make_room()

    def _make_room(self) -> None:
        """Have the oldest profiles leave. They become rows if there is time for it."""
        leaving: dict[str, list[Profile]] = {}
        while self._size > _STAYS * self._most_bytes:
            _, (profile, size, owner, is_certain) = self._profiles.popitem(last=False)
            self._size -= size
            if is_certain:
                leaving.setdefault(owner, []).append(profile)
        now = thread_time_ns()
        self._saved = min(self._saved + (now - self._seen) * _MOST_TIME, _MOST_SAVED)
        self._seen = now
        while leaving and self._saved > 0:
            self._read_now(*leaving.popitem())
            self._saved -= thread_time_ns() - now
            now = thread_time_ns()

    def take(self, digest: bytes) -> Profile | None:
        """Return the profile with a digest, which is then gone from here; None if there is none."""
        profile, size, *_ = self._profiles.pop(digest, (None, 0))
        self._size -= size
        return profile

    def drop(self, owner: str) -> None:
        """Delete the profiles that are for an owner's rows."""
        for digest in [digest for digest, (_, _, key, _) in self._profiles.items() if key == owner]:
            self.take(digest)


def _size(columns: ProfileColumns) -> int:
    """Return about how many bytes of memory the columns of a profile take that was just read."""
    rows = 5 * (columns.n_locations + columns.n_functions) + 3 * columns.n_lines + 10 * columns.n_mappings
    samples = columns.n_samples * (2 + columns.n_types) + 4 * columns.n_labels + columns.n_frames
    # Frames have 4 bytes, in a column that is made for up to twice as many.
    return _OBJECTS + _WORD * (rows + samples + 2 * columns.n_strings) + len(columns.text)


# The profiles in this process.
RECENT = RecentProfiles()
