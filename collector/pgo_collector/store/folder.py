"""The data folder: where everything is, made and locked at start, so that one process at a time uses it."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import structlog

from pgo_collector.engine.validation import gzipped_part
from pgo_collector.errors import FolderUnusable

CATALOG = "catalog.sqlite3"
LEGACY_SUFFIX = ".pgo"
_PART_SUFFIX = ".part"
_MERGED_SUFFIX = ".merge"
_FORMER_SUFFIXES = (".gz", ".converted")  # of merges that versions before this one kept
_RESTORING = "restoring"
_LOCK = "lock"
_MODE = 0o750
_LIBC = ctypes.CDLL(None, use_errno=True)
_log = structlog.get_logger()


def sync_folder(path: Path) -> None:
    """Makes durable which names are in a folder; of a file, fsync secures the content only."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Makes a file's content durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes) -> None:
    """Makes a new file, and its content durable."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def make_folder(path: Path) -> None:
    """Makes a folder and the ones above it, durably; nothing if it is there.

    A folder whose name can't be made durable is removed again, so that one that is there always is durable.
    Raises OSError.
    """
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(_MODE, exist_ok=True)
    try:
        sync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            path.rmdir()
        raise


def remove_empty(folder: Path, root: Path) -> None:
    """Removes a folder, and those above it up to `root`, as far as nothing is in them.

    To be called on the thread that makes files there, or one could be made in between.
    """
    while folder != root:
        try:
            folder.rmdir()
        except FileNotFoundError:
            pass
        except OSError:  # there is something in it, or it can't be removed
            return
        folder = folder.parent


def sync_all(path: Path) -> None:
    """Makes everything durable that is on the file system of a folder. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not hasattr(_LIBC, "syncfs"):
            os.sync()
        elif _LIBC.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)


def remove_part(part: Path) -> None:
    """Removes a file of incoming/ and its gzip, as far as they are there. Raises OSError."""
    part.unlink(missing_ok=True)
    gzipped_part(part).unlink(missing_ok=True)


class DataFolder:
    """The paths of a data folder that this process holds, as a context manager.

    blobs/            what is stored, see `blobs`
    incoming/*.part   bodies being received and merges being made; swept at start
    merged/*.merge    merges, by the fingerprint of what they merge and of their form
    rows/             what workers have decoded, see `shelf`
    tmp/              the engine's sockets, where there is no other place for them
    releases/         what pipelines build with, see `releases`
    catalog.sqlite3   see `catalog`
    session.secret    what sessions of the pages are signed with
    restoring         there until a restore is done
    lock              held with flock, so that it goes when the process does, however it ends

    So is the folder itself, lest another process takes it when the file `lock` is deleted.
    """

    def __init__(self, path: Path, *, for_restore: bool = False) -> None:
        """Makes and locks it. Raises FolderUnusable, also while a restore isn't done, but for that."""
        self.path = path
        self.blobs = path / "blobs"
        self.incoming = path / "incoming"
        self.merged = path / "merged"
        self.releases = path / "releases"
        self.rows = path / "rows"
        self.tmp = path / "tmp"
        self.catalog = path / CATALOG
        self.session_secret = path / "session.secret"
        try:
            make_folder(path)
            if stat.S_IMODE(path.stat().st_mode) == 0:  # as pgo-fleet makes it: of use to root alone
                path.chmod(_MODE)
            self._itself = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise FolderUnusable(f"data folder {path}: {error.strerror}") from error
        self._lock: int | None = None
        try:
            _hold_itself(self._itself)
            self._lock = _held(path / _LOCK)
            if not for_restore:
                _refuse_half_restored(path)
            for folder in (self.blobs, self.incoming, self.merged, self.releases, self.rows):
                make_folder(folder)
            # A process before this one may have died before a folder that it made was durable.
            sync_all(path)
        except FolderUnusable:
            self._release()
            raise
        except BlockingIOError:
            self._release()
            raise FolderUnusable(f"data folder {path}: another pgo-collector uses it") from None
        except OSError as error:
            self._release()
            raise FolderUnusable(f"data folder {path}: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def check_itself(self) -> None:
        """Raises OSError (ESTALE) if another folder than the one that was opened lies at the path."""
        if not _is_same(self._itself, self.path):
            raise OSError(errno.ESTALE, "the data folder was moved or replaced while it was served")

    def check_held(self) -> None:
        """Makes sure that this process alone writes here, for the thread that does. Raises OSError (ESTALE).

        A `lock` that was deleted or replaced is taken anew.
        """
        self.check_itself()
        lock = self.path / _LOCK
        if self._lock is not None and _is_same(self._lock, lock):
            return
        try:
            anew = _held(lock)
        except BlockingIOError:
            message = "the lock of the data folder was replaced, and another process holds it"
            raise OSError(errno.ESTALE, message) from None
        if self._lock is not None:
            os.close(self._lock)
        self._lock = anew
        _log.warning("the lock was deleted, made anew", file=str(lock))

    def _release(self) -> None:
        os.close(self._itself)
        if self._lock is not None:
            os.close(self._lock)

    def new_part(self) -> Path:
        """A name in incoming/ that nothing has."""
        return self.incoming / f"{secrets.token_hex(16)}{_PART_SUFFIX}"

    def merged_file(self, fingerprint: str) -> Path:
        """Where the merge of that fingerprint is."""
        return self.merged / f"{fingerprint}{_MERGED_SUFFIX}"

    def drop_caches(self) -> None:
        """Removes merges and rows, which can be made anew from the blobs. Raises OSError."""
        for path in (*self.merged.iterdir(), *self.rows.iterdir()):
            path.unlink()

    def drop_catalog(self) -> None:
        """Removes the catalog's file, with the events in it. Raises OSError."""
        for path in self.path.glob(f"{CATALOG}*"):
            path.unlink()

    def lend_room(self) -> None:
        """Where no place for temporary files is writable, as in a container, they go into tmp/.

        The processes of the engine are reached by a socket in such a place. Raises OSError.
        """
        try:
            tempfile.gettempdir()
        except FileNotFoundError:
            shutil.rmtree(self.tmp, ignore_errors=True)
            self.tmp.mkdir(_MODE)
            tempfile.tempdir = str(self.tmp)

    def sweep(self) -> None:
        """Removes what a process that ended halfway left in incoming/. Raises OSError."""
        for path in self.incoming.iterdir():
            if path.suffix == _PART_SUFFIX:
                path.unlink()
            else:
                warn_of_stranger(path)

    def sweep_merged(self, fingerprints: set[str]) -> None:
        """Removes all merges but those of the fingerprints. Raises OSError."""
        for path in self.merged.iterdir():
            if path.suffix not in {_MERGED_SUFFIX, *_FORMER_SUFFIXES}:
                warn_of_stranger(path)
            elif path.suffix != _MERGED_SUFFIX or path.stem not in fingerprints:
                path.unlink()

    def legacy_profiles(self) -> Iterator[Path]:
        """The files that pgo-fleet left, in the order of their names; warns of what is nobody's."""
        folders = {self.blobs, self.incoming, self.merged, self.releases, self.rows, self.tmp}
        ours = folders | {self.session_secret, self.path / _LOCK}
        for path in sorted(self.path.iterdir()):
            if path.suffix == LEGACY_SUFFIX and path.is_file():
                yield path
            elif path not in ours and not path.name.startswith(self.catalog.name):
                warn_of_stranger(path)


def is_being_restored(path: Path) -> bool:
    """Whether a restore into that folder goes on, or was cut off."""
    return (path / _RESTORING).exists()


def _refuse_half_restored(path: Path) -> None:
    if is_being_restored(path):
        raise FolderUnusable(
            f"data folder {path}: a restore into it was cut off; run it again, or empty the folder"
        )


@contextmanager
def restoring(path: Path) -> Iterator[DataFolder]:
    """A data folder that is empty, or in which this was cut off; of no use until the block has ended well.

    Raises FolderUnusable, and OSError.
    """
    make_folder(path)
    if {entry.name for entry in path.iterdir()} - {"lost+found"} and not is_being_restored(path):
        raise FolderUnusable(f"data folder {path}: it isn't empty; restore into one that is")
    (path / _RESTORING).touch()
    sync_folder(path)
    with DataFolder(path, for_restore=True) as folder:
        yield folder
        for made, _, _ in os.walk(path):
            sync_folder(Path(made))
        (path / _RESTORING).unlink()
        sync_folder(path)


def _held(lock: Path) -> int:
    """The descriptor of a lock file, made if it is missing, and held. Raises OSError; see flock(2)."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o640)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _hold_itself(folder: int) -> None:
    """Holds a folder by its descriptor. Raises BlockingIOError if another process does.

    A file system that can lock no folders has to do with the lock file.
    """
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        _log.info("the data folder itself can't be locked", reason=error.strerror)


def _is_same(descriptor: int, path: Path) -> bool:
    """Whether what is open is what lies at a path."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), found)


def warn_of_stranger(path: Path) -> None:
    """Logs that a file in the data folder isn't the collector's."""
    _log.warning("not ours, ignored", file=str(path))
