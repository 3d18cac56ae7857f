"""Keep profiles on disk until the collector has them: bounded in bytes and age, and sent oldest first.

Each profile is one file, named by the time at which it arrived (ns since 1970). If the clock steps back, the
name is one more than the newest, so the order stays. A file holds the SHA-256 of the rest as hex, a line of
JSON with the query parameters and, if requests are traced, the steps so far, and the gzipped profile.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from threading import Event
from typing import BinaryIO, Protocol

from pgo_agent.endpoint import Upload
from pgo_agent.errors import KeyRefused, NotReadable, SubmitRefused
from pgo_agent.logs import EventLogger
from pgo_agent.trace import Step

_DIGITS, _SUFFIX = 20, ".profile"
_UNFINISHED = "unfinished"
_LOCK_SECONDS = 5.0
_DIGEST_LENGTH = 64
_log = EventLogger(__name__)


class Dropped(StrEnum):
    """Why a profile was dropped. The values appear in logs and JSON summaries."""

    TOO_OLD = "too old"
    NO_ROOM = "no room"
    DAMAGED = "damaged"
    REFUSED = "refused"
    UNSENT = "unsent"


class Spool(Protocol):
    """A place where profiles wait for the collector. `dropped` counts the dropped ones by reason."""

    dropped: Counter[Dropped]

    def waiting(self) -> int:
        """Return how many profiles are stored."""

    def put(self, upload: Upload) -> bool:
        """Store a profile; return True if it survives the end of the process from now on."""

    def drain(self, send: Callable[[Upload], object], until: Event) -> None:
        """Call `send` with each stored profile, oldest first, until `until` is set.

        A profile is removed once it is sent, and dropped if `send` raises SubmitRefused. If that is
        KeyRefused, all profiles of its service stay, those of other services are sent, and the first
        KeyRefused is raised at the end. Any other error is raised to the caller, and the profile stays.
        """


class NoSpool:
    """A spool that keeps nothing: a profile that can't be sent at once is lost."""

    def __init__(self) -> None:
        self.dropped: Counter[Dropped] = Counter()

    def waiting(self) -> int:
        """Return 0."""
        return 0

    def put(self, upload: Upload) -> bool:  # noqa: ARG002 - the signature is Spool's
        """Return False: nothing is stored."""
        return False

    def drain(self, send: Callable[[Upload], object], until: Event) -> None:
        """Do nothing."""


class DiskSpool:
    """A folder with at most `max_bytes` bytes of profiles, none older than `max_age` seconds.

    Several processes may share the folder. One of them writes at a time, and each profile is sent by one of
    them at a time. The folder is created if it is missing, with access for the user only. If a new profile
    doesn't fit, the oldest ones are dropped. No method raises OSError: a full or unreadable disk is logged.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, max_bytes: int = 64 << 20, max_age: float = 7 * 86400.0
    ) -> None:
        self.folder = Path(folder)
        self._max_bytes = max_bytes
        self._max_age_ns = int(max_age * 1e9)
        # Sizes as of the last put. A file never changes, and an outage leaves thousands of them.
        self._sizes: dict[str, int] = {}
        # The services of profiles that stayed because of the key, by name: none is read only to be skipped.
        self._services: dict[str, str] = {}
        self.dropped: Counter[Dropped] = Counter()

    def waiting(self) -> int:
        """Return how many profiles wait in the folder; 0 if it can't be read."""
        try:
            return len(self._names())
        except OSError:
            return 0

    def put(self, upload: Upload) -> bool:
        """Write a profile to disk: write, sync, rename, sync the folder. Return True if that worked."""
        content = pack(upload)
        if len(content) > self._max_bytes:
            _log.warning("profile larger than spool", bytes=len(content), limit=self._max_bytes)
            return False
        try:
            with self._writing() as folder:
                before = self._names()
                number = max([time.time_ns(), *(_number(name) + 1 for name in before[-1:])])
                written = self._write(f"{number:0{_DIGITS}}{_SUFFIX}", content, folder)
                # Make room only now: on a full disk, no profile is dropped for one that can't be written.
                if not self._make_room(before, len(content)):
                    written.unlink()
                    _log.warning("spool full", folder=self.folder)
                    return False
        except OSError as error:
            _log.warning("profile not spooled", folder=self.folder, reason=error)
            return False
        return True

    def drain(self, send: Callable[[Upload], object], until: Event) -> None:
        """Send as `Spool` documents. Drop damaged and old profiles; skip those being sent elsewhere."""
        refused: dict[str, KeyRefused] = {}
        try:
            names = self._names()
            self._services = {name: self._services[name] for name in names if name in self._services}
            for name in names:
                if until.is_set():
                    break
                if self._services.get(name) in refused:
                    continue
                path = self.folder / name
                with self._claimed(path) as file:
                    if file is not None:
                        self._send(path, file, send, refused)
        except OSError as error:
            _log.warning("spool unreadable", folder=self.folder, reason=error)
        for first in refused.values():
            raise first

    def _send(
        self,
        path: Path,
        file: BinaryIO,
        send: Callable[[Upload], object],
        refused: dict[str, KeyRefused],
    ) -> None:
        """Send a profile, unless the key was refused for its service, which is noted in `refused`."""
        if time.time_ns() - int(path.stem) > self._max_age_ns:
            self._drop(path, Dropped.TOO_OLD, "it is too old")
            return
        try:
            upload = unpack(path, file.read())
        except NotReadable as error:
            self._drop(path, Dropped.DAMAGED, error.reason)
            return
        service = dict(upload.query).get("service", "")
        try:
            if service not in refused:
                send(replace(upload, steps=(*upload.steps, Step.since("spool", int(path.stem)))))
        except KeyRefused as error:
            refused[service] = error
        except SubmitRefused as error:
            self._drop(path, Dropped.REFUSED, str(error))
            return
        if service in refused:
            self._services[path.name] = service
        else:
            path.unlink(missing_ok=True)

    def _write(self, name: str, content: bytes, folder: int) -> Path:
        """Write a file atomically and return its path. After OSError the file is whole or missing."""
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
        """Drop the oldest profiles that aren't being sent; return True if `wanted` bytes fit then."""
        known = self._sizes
        self._sizes = {name: known[name] if name in known else _size(self.folder / name) for name in before}
        excess = sum(self._sizes.values()) + wanted - self._max_bytes
        for name, size in self._sizes.items():
            if excess <= 0:
                break
            path = self.folder / name
            with self._claimed(path) as file:
                if file is not None:
                    self._drop(path, Dropped.NO_ROOM, "the spool is full, and a newer one needs the room")
                    excess -= size
        return excess <= 0

    def _drop(self, path: Path, why: Dropped, reason: str) -> None:
        path.unlink(missing_ok=True)
        self.dropped[why] += 1
        _log.warning("spooled profile dropped", path=path, reason=reason)

    def _names(self) -> list[str]:
        """Return the file names of profiles, oldest first. Other files in the folder are ignored."""
        try:
            listed = os.listdir(self.folder)  # noqa: PTH208 - names take a third of the time of paths
        except FileNotFoundError:
            return []
        # All names have the same number of digits, so sorting them as text sorts by number.
        ours = (name for name in listed if name.endswith(_SUFFIX) and name[:_DIGITS].isdecimal())
        return sorted(name for name in ours if len(name) == _DIGITS + len(_SUFFIX))

    @contextmanager
    def _writing(self) -> Iterator[int]:
        """Open and lock the folder, so that no other process writes to it; yield its file descriptor."""
        make_folder(self.folder)
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            latest = time.monotonic() + _LOCK_SECONDS
            while not _locked(folder):
                if time.monotonic() > latest:
                    raise TimeoutError("another process keeps the folder locked")
                time.sleep(0.01)
            yield folder
        finally:
            _unlock(folder)
            os.close(folder)

    @contextmanager
    def _claimed(self, path: Path) -> Iterator[BinaryIO | None]:
        """Open and lock a profile; yield None if another process is sending or has removed it."""
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


def make_folder(path: Path) -> Path:
    """Make a folder for profiles if it isn't there, and return it. Raises OSError."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        text = "a file is in the way, and the spool is a folder"
        raise NotADirectoryError(errno.ENOTDIR, text, error.filename) from error
    return path


def pack(upload: Upload) -> bytes:
    """Return an upload as the content of a spool file."""
    head = {"query": upload.query, "steps": upload.steps} if upload.steps else upload.query
    rest = json.dumps(head).encode() + b"\n" + upload.body
    return _digest(rest) + b"\n" + rest


def unpack(path: Path, content: bytes) -> Upload:
    """Return the upload in a spool file. Raises NotReadable, with the path, if any byte has changed."""
    digest, rest = content[:_DIGEST_LENGTH], content[_DIGEST_LENGTH + 1 :]
    if content[_DIGEST_LENGTH : _DIGEST_LENGTH + 1] != b"\n" or _digest(rest) != digest:
        raise NotReadable(path, "it is damaged: its SHA-256 does not match")
    line, _, body = rest.partition(b"\n")
    head = json.loads(line)
    query, steps = (head["query"], head["steps"]) if isinstance(head, dict) else (head, ())
    return Upload(body, tuple((name, value) for name, value in query), tuple(Step(*step) for step in steps))


def _digest(rest: bytes) -> bytes:
    return hashlib.sha256(rest).hexdigest().encode()


def _number(name: str) -> int:
    return int(name[:_DIGITS])


def _size(path: Path) -> int:
    """Return the size of a file in bytes; 0 if another process has sent and removed it."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _locked(descriptor: int) -> bool:
    """Try to lock a file; return True if it worked. The lock ends with the process, however that ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock(descriptor: int) -> None:
    # Unlock explicitly: a child forked meanwhile has the descriptor, and closing ours leaves the lock.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
