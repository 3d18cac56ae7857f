"""Checks of the data folder: its owner, its permissions, and the free space on its disk."""

from __future__ import annotations

import errno
import os
import pwd
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from math import inf, isfinite
from pathlib import Path

from pgo_collector.blobs.files import sync_file, sync_folder
from pgo_collector.checks import Finding
from pgo_collector.settings import Settings
from pgo_collector.store.folder import OTHERS, is_being_restored, open_to_others

_MEGABYTE = 1 << 20
_LITTLE_BYTES = 256 * _MEGABYTE
_LITTLE_SHARE = 0.05
_ROOT = 0
# Parts that files come to from incoming/.
_LINKED = "binaries", "blobs", "incoming", "merged", "releases"


def check_folder(settings: Settings) -> Iterator[Finding]:
    """Check whether the user of this process can use the data folder. Writes and deletes a small file."""
    path = settings.directory
    if not is_there(path):
        above = next(parent for parent in path.absolute().parents if is_there(parent))
        if os.access(above, os.W_OK | os.X_OK):
            yield Finding("data folder", "ok", f"{path} isn't there yet; the start makes it")
        else:
            fix = f"make it for the user that runs the server: install -d -o USER -m 0700 {path}"
            yield Finding("data folder", "fails", f"{path} can't be made by {_me()}", fix)
        return
    if is_being_restored(path):
        fix = "run `pgo-collector restore` again, or empty the folder"
        yield Finding("data folder", "fails", f"a restore into {path} was interrupted", fix)
        return
    yield _owner(path)
    yield _privacy(path)
    yield _rights(path)


def check_disk(settings: Settings, stored_bytes: dict[str, int]) -> Finding:
    """Check whether the disk has room; `stored_bytes` has the bytes of `single` and `combined` profiles."""
    directory = settings.directory.absolute()
    path = next(each for each in (directory, *directory.parents) if is_there(each))
    disk, files = shutil.disk_usage(path), os.statvfs(path)
    said = (
        f"{_size(disk.free)} of {_size(disk.total)} are free, {_size(sum(stored_bytes.values()))} are stored"
    )
    fix = (
        "free space, have retention delete more (PGOF_KEEP_DAYS, PGOF_KEEP_MEGABYTES), or take a larger disk"
    )
    if files.f_files and not files.f_favail:
        return Finding("disk", "fails", "no more files can be made on it: it has no inode left", fix)
    if disk.free < 2 * settings.largest_body:
        return Finding("disk", "fails", f"{said}: not enough for one submit", fix)
    bounds = {"single": settings.keep_megabytes, "combined": settings.keep_combined_megabytes}
    growth = sum(
        max(bound * _MEGABYTE - stored_bytes.get(kind, 0), 0)
        for kind, bound in bounds.items()
        if isfinite(bound)
    )
    if growth > disk.free:
        return Finding("disk", "warning", f"{said}, and PGOF_KEEP_… allow {_size(growth)} more", fix)
    if disk.free < max(_LITTLE_BYTES, disk.total * _LITTLE_SHARE):
        return Finding("disk", "warning", said, fix)
    bounded = min(settings.keep_days, settings.keep_megabytes, settings.rollup_days) < inf
    return Finding("disk", "ok", said + ("" if bounded else "; nothing is ever deleted or rolled up"))


def is_there(path: Path) -> bool:
    """Return whether there is something at a path that this user may look at."""
    try:
        return path.exists()
    except OSError:
        return False


def _owner(path: Path) -> Finding:
    owner = path.stat().st_uid
    if owner == os.geteuid():
        return Finding("owner", "ok", f"{path} belongs to {_me()}, who runs this check")
    detail = f"{path} belongs to {_name(owner)}, and {_me()} runs this check"
    if os.geteuid() == _ROOT:
        fix = f"run it as the server's user (`setpriv --reuid {owner} --clear-groups`): root may do anything"
        return Finding("owner", "warning", detail, fix)
    return Finding("owner", "warning", detail, f"chown -R {_me()} {path}, if this is the server's user")


def _privacy(path: Path) -> Finding:
    """Check whether others than the server's user can read what is in the folder."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & OTHERS:
        return Finding("privacy", "ok", f"only its user can use {path}")
    opened: list[str] = []
    with suppress(OSError):  # it isn't a folder, or this user can't list it: the next check says so
        opened = [each.name for each, _ in open_to_others(path) if each != path]
    if not opened:
        return Finding("privacy", "ok", f"only its user can use what is in {path}")
    detail = f"others than its user may use {path} (mode {mode:04o}), and in it {', '.join(sorted(opened))}"
    return Finding("privacy", "warning", detail, f"chmod go= {path} {path}/*; the next start does it, too")


def _rights(path: Path) -> Finding:
    """Try what every submit does, in incoming/ if it is there."""
    incoming = path / "incoming"
    place = incoming if incoming.is_dir() else path
    part = place / f"{secrets.token_hex(16)}.part"
    link = part.with_suffix(".link.part")
    try:
        try:
            part.write_bytes(bytes(8192))
            sync_file(part)
            os.link(part, link)
            sync_folder(place)
        finally:
            for made in (part, link):
                with suppress(FileNotFoundError):
                    made.unlink()
    except OSError as error:
        if error.errno in {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS} and error.filename2:
            fix = "use a local file system with hard links, such as ext4 or XFS"
        elif error.errno == errno.ENOSPC:
            fix = "free some space"
        elif error.errno == errno.ENOTDIR:
            fix = "let PGOF_DIRECTORY name a folder"
        else:
            fix = f"give it to the user that runs the server: chown -R USER {path}"
        return Finding("data folder", "fails", f"{place}: {error.strerror}", fix)
    apart = [each for each in _LINKED if _is_elsewhere(path, each)]
    if apart:
        fix = "keep the whole data folder on one file system: files are linked and renamed between its parts"
        return Finding("data folder", "fails", f"on another file system than {path}: {', '.join(apart)}", fix)
    return Finding("data folder", "ok", f"{place} can be written, linked and synced")


def _is_elsewhere(path: Path, name: str) -> bool:
    with suppress(OSError):
        return (path / name).stat().st_dev != path.stat().st_dev
    return False


def _me() -> str:
    return _name(os.geteuid())


def _name(user: int) -> str:
    with suppress(KeyError):
        return f"{pwd.getpwuid(user).pw_name} ({user})"
    return f"user {user}"


def _size(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"
