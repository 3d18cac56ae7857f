"""Durable files and folders: what is written here is there after a power cut."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path
from threading import Lock

import structlog

from pgo_collector.traces.spans import span

PART_SUFFIX = ".part"
FOLDER_MODE = 0o700
_LIBC = ctypes.CDLL(None, use_errno=True)
# The parts that couldn't be deleted yet, those that were tried longest ago first, and the lock of the dict.
_left: dict[Path, None] = {}
_leaving = Lock()
_log = structlog.get_logger()


def new_part(folder: Path) -> Path:
    """Return an unused path in a folder, for a file that is being written."""
    return folder / f"{secrets.token_hex(16)}{PART_SUFFIX}"


def delete_part(part: Path) -> OSError | None:
    """Delete a part if it is there; after a failure, log it and return the error.

    What was made of the part counts all the same. Each later one that works tries one of those that were
    left again, and the next start tries all.
    """
    try:
        part.unlink(missing_ok=True)
    except OSError as error:
        with _leaving:
            is_new = part not in _left
            _left[part] = None
        if is_new:
            log_not_deleted(str(part), error)
        return error
    if _left:
        with _leaving:
            again = next(iter(_left), part)
            _left.pop(again, None)
            try:
                again.unlink(missing_ok=True)
            except OSError:
                _left[again] = None
    return None


def delete_or_log(path: Path) -> None:
    """Delete a file if it is there; log a failure. Somebody tries again later, or at the next start."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log_not_deleted(str(path), error)


def log_not_deleted(where: str, error: OSError) -> None:
    """Log that a file or an object that isn't needed any more is still there."""
    _log.warning("file not deleted", file=where, reason=error.strerror or str(error))


def sync_folder(path: Path | str) -> None:
    """Make the names in a folder durable; fsync of a file makes only its content durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make a file's content durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes) -> None:
    """Write a new file and make its content durable. Raises FileExistsError if it is there."""
    descriptor = open_written(path, content)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_written(path: Path, content: bytes) -> int:
    """Write a new file; return its descriptor, to be synced and closed. Raises FileExistsError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def make_folder(path: Path) -> None:
    """Make a folder and the missing ones above it, durably, if it isn't there. Raises OSError.

    A folder whose name can't be made durable is removed again, so that an existing folder is always durable.
    """
    if path.is_dir():
        return
    if path.exists():
        raise NotADirectoryError(errno.ENOTDIR, f"{path} is a file, and a folder is expected", str(path))
    make_folder(path.parent)
    with span("store", "make folder"):
        path.mkdir(FOLDER_MODE, exist_ok=True)
        try:
            sync_folder(path.parent)
        except OSError:
            with suppress(OSError):
                path.rmdir()
            raise


def remove_empty(folder: Path, root: Path) -> None:
    """Remove a folder if it is empty, then the empty ones above it, up to `root` exclusively.

    Call it on the thread that makes files there, or a folder could vanish before its file is made.
    """
    while folder != root:
        try:
            folder.rmdir()
        except FileNotFoundError:
            pass
        except OSError:  # it isn't empty, or can't be removed
            return
        folder = folder.parent


def sync_all(path: Path) -> None:
    """Make everything on a folder's file system durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not hasattr(_LIBC, "syncfs"):
            os.sync()
        elif _LIBC.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)
