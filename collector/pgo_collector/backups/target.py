"""The target of backups: a folder that has the last whole one, and what a later one has copied so far.

    backup.json      what belongs to the last whole one: see `Manifest`
    blobs/           as in the data folder; what a backup has in common with the one before is copied once
    files/<sha256>   the catalog, and the files of releases/
    lock             held with flock by who writes or reads

All files are immutable but backup.json, with which a backup takes effect at once, and .inputs, of which any
that is newer than the catalog is what a crash of the server may leave too.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Collection
from pathlib import Path
from typing import Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from pgo_collector.backups.copying import Folder, copy_file, put, sha256_of
from pgo_collector.errors import BackupUnusable
from pgo_collector.store.folder import make_folder, sync_folder

_MANIFEST = "backup.json"
_PART_SUFFIX = ".part"


class Manifest(BaseModel):
    """A whole backup: of when and by which version, and of what.

    `catalog` is the SHA-256 of the catalog, which names the blobs; `releases` has those of the files of
    releases/, by their paths below it; `profiles` is how many the catalog counts. `lost` is what could not be
    copied, and why.
    """

    model_config = ConfigDict(frozen=True)

    layout: Literal[1] = 1
    time: AwareDatetime
    version: str
    profiles: int
    catalog: str
    releases: dict[str, str]
    lost: list[str] = []


class Target:
    """The folder, as a context manager that holds its lock. Methods raise OSError."""

    def __init__(self, path: Path, *, to_read: bool = False) -> None:
        """`to_read` needs no right to write. Raises BackupUnusable if another process uses it."""
        self.path = path
        self._files = path / "files"
        self._lock = os.open(path / "lock", os.O_RDONLY if to_read else os.O_RDWR | os.O_CREAT, 0o640)
        try:
            fcntl.flock(self._lock, (fcntl.LOCK_SH if to_read else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise BackupUnusable(f"backup {path}: another backup or restore uses it") from None
        blobs = path / "blobs"
        if not to_read:
            make_folder(blobs)
        self.blobs = Folder(blobs if blobs.is_dir() else path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.blobs.__exit__()
        os.close(self._lock)

    def manifest(self) -> Manifest | None:
        """The last whole backup, None if there is none. Raises BackupUnusable."""
        path = self.path / _MANIFEST
        try:
            return Manifest.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise BackupUnusable(f"backup {path}: it isn't what a backup of this version writes") from error

    def new_part(self) -> Path:
        """A name that nothing has, for a file that is being written."""
        return self.path / f"{secrets.token_hex(16)}{_PART_SUFFIX}"

    def file(self, sha256: str) -> Path:
        """Where the file with that SHA-256 is."""
        return self._files / sha256

    def keep(self, source: Path) -> str:
        """Copies a file into files/, if it isn't there; its SHA-256."""
        sha256 = sha256_of(source)
        if not self.file(sha256).exists():
            copy_file(source, self.new_part(), self.file(sha256), sha256)
        return sha256

    def commit(self, manifest: Manifest) -> None:
        """Makes all that was copied the last whole backup."""
        self.blobs.sync()
        if self._files.is_dir():
            sync_folder(self._files)
        sync_folder(self.path)
        put(manifest.model_dump_json(indent=1).encode(), self.new_part(), self.path / _MANIFEST)
        sync_folder(self.path)

    def sweep(self, blobs: Collection[str], files: Collection[str]) -> None:
        """Removes all but these files, by their paths below blobs/ and files/."""
        self.blobs.remove_all_but(blobs)
        for path in [*self._files.iterdir()]:
            if path.name not in files:
                path.unlink()
        for path in self.path.glob(f"*{_PART_SUFFIX}*"):
            path.unlink()


def open_target(path: Path) -> Target:
    """The folder, made if it is missing. Raises BackupUnusable if it has what no backup made, and OSError."""
    make_folder(path)
    strangers = {entry.name for entry in path.iterdir() if _PART_SUFFIX not in entry.name}
    if strangers - {_MANIFEST, "blobs", "files", "lock", "lost+found"}:
        raise BackupUnusable(
            f"backup {path}: {min(strangers)} is no part of a backup; take a folder of its own"
        )
    return Target(path)
