"""The data folder: the paths of everything that is stored, and the lock that keeps other processes out."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Self

import structlog

from pgo_collector.blobs.files import (
    FOLDER_MODE,
    PART_SUFFIX,
    delete_part,
    make_folder,
    new_part,
    sync_all,
    sync_folder,
)
from pgo_collector.blobs.folder import FolderStorage
from pgo_collector.blobs.storage import UNDATED
from pgo_collector.errors import FolderUnusable
from pgo_collector.settings import MERGE_KEYS, SUBMIT_KEYS
from pgo_collector.traces.trace_store import FILE as TRACES

CATALOG = "catalog.sqlite3"
LEGACY_SUFFIX = ".pgo"
_RESTORING = "restoring"
_LOCK = "lock"
# The rights of a file's group, and of all others.
OTHERS = stat.S_IRWXG | stat.S_IRWXO
_log = structlog.get_logger()


class DataFolder:
    """The paths of a data folder that this process has locked, as a context manager.

    blobs/            the stored profiles, see `blobs.blobs`
    incoming/*.part   bodies being received and merges being made; deleted at a start
    merged/*.merge    kept merges, see `merges.kept`
    rows/             decoded profiles of the workers, see `engine.row_cache`
    opened/           files that somebody looks at, see `submits.opened_files`; deleted at a start
    tmp/              sockets of the worker processes, if there is no other folder for temporary files
    start_lines/      where Go functions begin, see `engine.start_lines`
    binaries/         programs that were uploaded, see `store.binaries`
    releases/         the profiles that pipelines build with, see `releases`
    undated/          times of profiles that are being stored, see `submits.commit`
    copies/           tables of symbols, and copies of what is in a bucket, see `blobs.copies`
    catalog.sqlite3   the catalog, unless PGOF_CATALOG names another database: see `catalog`
    traces.sqlite3    the traces of requests, see `traces.trace_store`
    submit_keys       keys that `serve` has made, see `serve.first_look`
    merge_keys        the same
    session.secret    the secret that signs the sessions of the pages
    restoring         there until a restore is complete
    lock              locked with flock, which the kernel releases when the process ends, however it ends

    Only this process's user can use the folder and what is in it.

    The folder itself is locked, too, so that another process can't use it when the file `lock` is deleted.
    """

    def __init__(self, path: Path, *, for_restore: bool = False) -> None:
        """Make the folder if it is missing, and lock it.

        Raises FolderUnusable, also for an incomplete restore unless `for_restore`.
        """
        self.path = path
        self.blobs = path / "blobs"
        self.incoming = path / "incoming"
        self.merged = path / "merged"
        self.releases = path / "releases"
        self.rows = path / "rows"
        self.start_lines = path / "start_lines"
        self.binaries = path / "binaries"
        self.copies = path / "copies"
        self.undated = path / UNDATED
        self.opened = path / "opened"
        self.tmp = path / "tmp"
        self.catalog = path / CATALOG
        self.session_secret = path / "session.secret"
        try:
            make_folder(path)
            if stat.S_IMODE(path.stat().st_mode) == 0:  # as pgo-fleet makes it: only root can use it
                path.chmod(FOLDER_MODE)
            self._itself = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise FolderUnusable(f"data folder {path}: {error.strerror}") from error
        self._lock: int | None = None
        self._locking = Lock()
        try:
            _lock_folder(self._itself)
            self._lock = _lock_file(path / _LOCK)
            if not for_restore:
                _refuse_half_restored(path)
            for folder in (
                self.binaries, self.blobs, self.copies, self.incoming, self.merged, self.releases,
                self.rows, self.start_lines, self.undated,
            ):  # fmt: skip
                make_folder(folder)
            _make_private(path)
            # An earlier process may have died before a folder that it had made was durable.
            sync_all(path)
        except FolderUnusable:
            self._release()
            raise
        except BlockingIOError:
            self._release()
            raise FolderUnusable(
                f"data folder {path}: another pgo-collector uses it; stop that one, or take another folder"
            ) from None
        except OSError as error:
            self._release()
            raise FolderUnusable(f"data folder {path}: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def check_same_folder(self) -> None:
        """Raise OSError (ESTALE) if the path no longer leads to the folder that was opened."""
        if not _is_same(self._itself, self.path):
            raise OSError(errno.ESTALE, "the data folder was moved or replaced while it was served")

    def check_held(self) -> None:
        """Check that this process alone writes here. Raises OSError (ESTALE).

        While the file `lock` is the one that was locked, no other process can use the folder that it is in.
        If it was deleted or replaced, it is locked again.
        """
        lock = self.path / _LOCK
        with self._locking:
            if self._lock is not None and _is_same(self._lock, lock):
                return
            self.check_same_folder()
            try:
                made = _lock_file(lock)
            except BlockingIOError:
                message = "the lock of the data folder was replaced, and another process holds it"
                raise OSError(errno.ESTALE, message) from None
            if self._lock is not None:
                os.close(self._lock)
            self._lock = made
        _log.warning("lock file replaced", file=str(lock))

    def _release(self) -> None:
        os.close(self._itself)
        if self._lock is not None:
            os.close(self._lock)

    def new_part(self) -> Path:
        """Return an unused path in incoming/."""
        return new_part(self.incoming)

    def drop_caches(self) -> None:
        """Delete kept merges, rows and copies, which can be made again. Raises OSError."""
        for path in (*self.merged.iterdir(), *self.rows.iterdir(), *self.copies.iterdir()):
            path.unlink()

    def ensure_temp_folder(self) -> None:
        """Have temporary files in tmp/ if no other folder for them is writable, as in a container.

        multiprocessing needs such a folder for its sockets. Raises OSError.
        """
        try:
            tempfile.gettempdir()
        except FileNotFoundError:
            shutil.rmtree(self.tmp, ignore_errors=True)
            self.tmp.mkdir(FOLDER_MODE)
            tempfile.tempdir = str(self.tmp)

    def sweep(self) -> None:
        """Delete the files that a process was writing when it was killed. Raises OSError."""
        for path in self.incoming.iterdir():
            if path.suffix == PART_SUFFIX:
                delete_part(path)
            else:
                log_unknown_file(str(path))
        for path in self.copies.glob(f"*{PART_SUFFIX}"):
            delete_part(path)

    def legacy_profiles(self) -> Iterator[Path]:
        """Yield the profiles of a pgo-fleet server, sorted by name; log unknown files."""
        folders = {
            self.binaries,
            self.blobs,
            self.copies,
            self.incoming,
            self.merged,
            self.opened,
            self.releases,
            self.rows,
            self.start_lines,
            self.tmp,
            self.undated,
        }
        files = {self.session_secret.name, _LOCK, SUBMIT_KEYS, MERGE_KEYS}
        ours = folders | {self.path / name for name in files}
        databases = CATALOG, TRACES  # with the files that SQLite has beside them
        for path in sorted(self.path.iterdir()):
            if path.suffix == LEGACY_SUFFIX and path.is_file():
                yield path
            elif path not in ours and not path.name.startswith(databases):
                log_unknown_file(str(path))


class FolderClaim:
    """The claim of the blobs in a data folder: its lock, which keeps others out."""

    def __init__(self, folder: DataFolder) -> None:
        self.check = folder.check_held

    async def take(self, catalog: int, before: int | None = None) -> None:
        """Do nothing."""

    async def run(self) -> None:
        """Do nothing."""


def folder_storage(path: Path) -> FolderStorage:
    """Return the storage of blobs in the data folder at this path, which may be locked or not."""
    return FolderStorage(path / "blobs", path / "incoming")


def is_being_restored(path: Path) -> bool:
    """Return whether a restore into this folder is running, or was interrupted."""
    return (path / _RESTORING).exists()


def _refuse_half_restored(path: Path) -> None:
    if is_being_restored(path):
        raise FolderUnusable(
            f"data folder {path}: a restore into it was interrupted; run it again, or empty the folder"
        )


@contextmanager
def restoring(path: Path) -> Iterator[DataFolder]:
    """Open a data folder for a restore: an empty one, or one into which a restore was interrupted.

    No server can use the folder until the block has ended without an error. Raises FolderUnusable and
    OSError.
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


def _lock_file(lock: Path) -> int:
    """Lock a file, made if it is missing; return its descriptor. Raises OSError; see flock(2)."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _make_private(path: Path) -> None:
    """Take from all others the rights to a data folder, and to the files and folders directly in it.

    The folder may be another user's, as the root of a volume is.
    """
    opened = []
    for each, mode in open_to_others(path):
        with suppress(OSError):
            each.chmod(mode & ~OTHERS)
            opened.append(each.name)
    if opened:
        _log.warning("data folder made private", folder=str(path), opened=opened)


def open_to_others(path: Path) -> Iterator[tuple[Path, int]]:
    """Yield a data folder, and what is directly in it, with the mode, if others than its user have rights.

    Profiles of pgo-fleet are left out: there may be many, and the start deletes them.
    """
    for each in (path, *path.iterdir()):
        found = each.lstat()
        if found.st_mode & OTHERS and not stat.S_ISLNK(found.st_mode) and each.suffix != LEGACY_SUFFIX:
            yield each, stat.S_IMODE(found.st_mode)


def _lock_folder(folder: int) -> None:
    """Lock a folder by its descriptor. Raises BlockingIOError if another process has locked it.

    On a file system that can't lock folders, only the lock file is locked.
    """
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        _log.info("folder lock unsupported", reason=error.strerror)


def _is_same(descriptor: int, path: Path) -> bool:
    """Return whether a descriptor is of the file or folder at this path."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), found)


def log_unknown_file(where: str) -> None:
    """Log that a file or object among the collector's isn't one of them."""
    _log.warning("unknown file ignored", file=where)
