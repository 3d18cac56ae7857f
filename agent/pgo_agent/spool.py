"""Profiles on disk until the collector has them: bounded, and sent in the order in which they came.

Each is a file of its own, named by the time at which it came (ns since 1970), or one more than the newest: a
clock that steps back doesn't change the order.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from threading import Event
from typing import BinaryIO, Protocol

from pgo_agent.endpoint import Upload
from pgo_agent.errors import NotReadable, SubmitRefused
from pgo_agent.spooled import pack, unpack

_DIGITS, _SUFFIX = 20, ".profile"
_UNFINISHED = "unfinished"
_PATIENCE = 5.0
_log = logging.getLogger(__name__)


class Dropped(StrEnum):
    """Why a profile was given up."""

    TOO_OLD = "too old"
    NO_ROOM = "no room"
    DAMAGED = "damaged"
    REFUSED = "refused"
    UNSENT = "unsent"


class Spool(Protocol):
    """Where profiles wait. `dropped` counts those that were given up, by reason."""

    dropped: Counter[Dropped]

    def put(self, upload: Upload) -> bool:
        """Whether the profile is kept from now on, whatever becomes of the process."""

    def drain(self, send: Callable[[Upload], None], until: Event) -> None:
        """Sends what is there, oldest first, until `until` is set.

        What `send` raises goes on to the caller, and the profile stays; after SubmitRefused it is dropped.
        """


class NoSpool:
    """For those who want none."""

    def __init__(self) -> None:
        self.dropped: Counter[Dropped] = Counter()

    def put(self, upload: Upload) -> bool:  # noqa: ARG002 - as Spool has it
        """Keeps nothing."""
        return False

    def drain(self, send: Callable[[Upload], None], until: Event) -> None:
        """Has nothing to send."""


class DiskSpool:
    """A folder of at most `max_bytes`, of profiles that are at most `max_age` seconds old.

    Several processes may share it: one at a time writes, and each profile is sent by one at a time. It is
    made if it is missing, for the user alone. Of what doesn't fit, the oldest goes. Nothing here raises
    OSError: where the disk is full or can't be read, that is logged.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, max_bytes: int = 64 << 20, max_age: float = 7 * 86400.0
    ) -> None:
        self.folder = Path(folder)
        self._max_bytes = max_bytes
        self._max_age_ns = int(max_age * 1e9)
        # Of those that were there with the last put: a file never changes, and an outage leaves thousands.
        self._sizes: dict[str, int] = {}
        self.dropped: Counter[Dropped] = Counter()

    def waiting(self) -> int:
        """How many profiles are in there now; none if it can't be read."""
        try:
            return len(self._names())
        except OSError:
            return 0

    def put(self, upload: Upload) -> bool:
        """Whether the profile is on disk: written, synced, renamed, and its folder synced."""
        content = pack(upload)
        if len(content) > self._max_bytes:
            _log.warning("a profile of %d bytes is larger than the whole spool", len(content))
            return False
        try:
            with self._writing() as folder:
                before = self._names()
                number = max([time.time_ns(), *(_number(name) + 1 for name in before[-1:])])
                written = self._write(f"{number:0{_DIGITS}}{_SUFFIX}", content, folder)
                # Only now: on a full disk, nothing is to go for one that can't be written.
                if not self._make_room(before, len(content)):
                    written.unlink()
                    _log.warning(
                        "a profile can't be kept in %s: all that is there is being sent", self.folder
                    )
                    return False
        except OSError as error:
            _log.warning("a profile can't be kept in %s: %s", self.folder, error)
            return False
        return True

    def drain(self, send: Callable[[Upload], None], until: Event) -> None:
        """See Spool. What is damaged or too old is dropped; what another process is sending is left to it."""
        try:
            for name in self._names():
                if until.is_set():
                    return
                path = self.folder / name
                with self._claimed(path) as file:
                    if file is not None:
                        self._send(path, file, send)
        except OSError as error:
            _log.warning("the profiles in %s can't be read: %s", self.folder, error)

    def _send(self, path: Path, file: BinaryIO, send: Callable[[Upload], None]) -> None:
        if time.time_ns() - int(path.stem) > self._max_age_ns:
            self._drop(path, Dropped.TOO_OLD, "it is too old")
            return
        try:
            send(unpack(path, file.read()))
        except NotReadable as error:
            self._drop(path, Dropped.DAMAGED, error.reason)
        except SubmitRefused as error:
            self._drop(path, Dropped.REFUSED, str(error))
        else:
            path.unlink(missing_ok=True)

    def _write(self, name: str, content: bytes, folder: int) -> Path:
        """The file, which is there as a whole or, after OSError, perhaps not at all."""
        unfinished = self.folder / _UNFINISHED
        try:
            with unfinished.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            written = unfinished.rename(self.folder / name)
            os.fsync(folder)
        finally:
            unfinished.unlink(missing_ok=True)
        return written

    def _make_room(self, before: Sequence[str], wanted: int) -> bool:
        """Whether `wanted` bytes fit, after dropping the oldest as needed, but none that is being sent."""
        known = self._sizes
        self._sizes = {name: known[name] if name in known else _size(self.folder / name) for name in before}
        excess = sum(self._sizes.values()) + wanted - self._max_bytes
        for name, size in self._sizes.items():
            if excess <= 0:
                break
            path = self.folder / name
            with self._claimed(path) as file:
                if file is not None:
                    self._drop(path, Dropped.NO_ROOM, "newer ones need its room")
                    excess -= size
        return excess <= 0

    def _drop(self, path: Path, why: Dropped, reason: str) -> None:
        path.unlink(missing_ok=True)
        self.dropped[why] += 1
        _log.warning("dropped the profile %s: %s", path, reason)

    def _names(self) -> list[str]:
        """The files of profiles, oldest first; other files are none of ours."""
        try:
            listed = os.listdir(self.folder)  # noqa: PTH208 - names alone take a third of the time of paths
        except FileNotFoundError:
            return []
        # All have as many digits, so the order of texts is that of numbers.
        ours = (name for name in listed if name.endswith(_SUFFIX) and name[:_DIGITS].isdecimal())
        return sorted(name for name in ours if len(name) == _DIGITS + len(_SUFFIX))

    @contextmanager
    def _writing(self) -> Iterator[int]:
        """The folder, open, with this process as the only one that writes to it."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            latest = time.monotonic() + _PATIENCE
            while not _locked(folder):
                if time.monotonic() > latest:
                    raise TimeoutError("another process keeps it locked")
                time.sleep(0.01)
            yield folder
        finally:
            _unlock(folder)
            os.close(folder)

    @contextmanager
    def _claimed(self, path: Path) -> Iterator[BinaryIO | None]:
        """A profile, open, for this process alone to send or drop; None if another one does or did."""
        try:
            file = path.open("rb")
        except FileNotFoundError:
            yield None
            return
        with file:
            if not _locked(file.fileno()):
                yield None
                return
            try:
                yield file if os.fstat(file.fileno()).st_nlink else None
            finally:
                _unlock(file.fileno())


def _number(name: str) -> int:
    return int(name[:_DIGITS])


def _size(path: Path) -> int:
    """In bytes; 0 if it is gone, as others send while one writes."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _locked(descriptor: int) -> bool:
    """Whether the lock could be had; it ends with the process, however that ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock(descriptor: int) -> None:
    # Closing alone would leave it to a child that was forked meanwhile, and knows nothing of it.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
