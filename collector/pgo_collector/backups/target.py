"""The target of backups: a folder with the last complete backup, and the files that a later one has copied.

    backup.json      the list of the last complete backup's files: see `Manifest`
    blobs/           as in the data folder; blobs that two backups share are copied once
    files/<sha256>   the catalog, and the files of releases/, start_lines/ and binaries/
    lock             locked with flock by the process that writes or reads

All files are immutable but two kinds. Replacing backup.json completes a backup. An .inputs may be newer than
the catalog, as after a crash of the server, which a start handles.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from pgo_collector.backups.copying import Folder, copy_file, put, sha256_of
from pgo_collector.blobs.files import make_folder, sync_folder
from pgo_collector.blobs.storage import Storage
from pgo_collector.errors import BackupUnusable

_MANIFEST = "backup.json"
_PART_SUFFIX = ".part"


class Manifest(BaseModel):
    """A complete backup: when it was made, by which version, and what is in it.

    `catalog` is the SHA-256 of the catalog, which names the blobs; `releases` has the SHA-256 of each file of
    releases/, by its path there, `start_lines` those of start_lines/ and `binaries` those of binaries/;
    `profiles` is how many profiles the catalog counts, and `lost` has a message for each file that could not
    be copied.
    """

    model_config = ConfigDict(frozen=True)

    layout: Literal[1] = 1
    time: AwareDatetime
    version: str
    profiles: int
    catalog: str
    releases: dict[str, str]
    start_lines: dict[str, str] = {}
    binaries: dict[str, str] = {}
    lost: list[str] = []


class Target:
    """The folder of backups, as a context manager that holds its lock. Methods raise OSError."""

    def __init__(self, path: Path, *, to_read: bool = False) -> None:
        """Open and lock the folder; `to_read` needs no permission to write.

        Raises BackupUnusable if another process uses it.
        """
        self.path = path
        self._files = path / "files"
        self._lock = os.open(path / "lock", os.O_RDONLY if to_read else os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, (fcntl.LOCK_SH if to_read else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise BackupUnusable(
                f"backup {path}: another backup or restore uses it; wait until that has ended"
            ) from None
        blobs = path / "blobs"
        if not to_read:
            make_folder(blobs)
        self.blobs = Folder(blobs if blobs.is_dir() else path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.blobs.close()
        os.close(self._lock)

    def manifest(self) -> Manifest | None:
        """Return the last complete backup; None if there is none. Raises BackupUnusable."""
        path = self.path / _MANIFEST
        try:
            return Manifest.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise BackupUnusable(
                f"backup {path}: it is damaged or another version's; use the version that wrote it"
            ) from error

    def new_part(self) -> Path:
        """Return an unused path, for a file that is being written."""
        return self.path / f"{secrets.token_hex(16)}{_PART_SUFFIX}"

    def file(self, sha256: str) -> Path:
        """Return the path of the file with this SHA-256."""
        return self._files / sha256

    def add_file(self, source: Path) -> str:
        """Copy a file into files/, if it isn't there; return its SHA-256 in hex."""
        with source.open("rb") as file:
            return self._add(file, str(source))

    def add_object(self, storage: Storage, name: str) -> str:
        """Do the same with an object."""
        with storage.open(name) as file:
            return self._add(file, storage.where(name))

    def _add(self, source: BinaryIO, where: str) -> str:
        sha256 = sha256_of(source)
        if not self.file(sha256).exists():
            source.seek(0)
            copy_file(source, where, self.new_part(), self.file(sha256), sha256)
        return sha256

    def commit(self, manifest: Manifest) -> None:
        """Complete a backup: make all copies durable, then replace backup.json."""
        self.blobs.sync()
        if self._files.is_dir():
            sync_folder(self._files)
        sync_folder(self.path)
        put(manifest.model_dump_json(indent=1).encode(), self.new_part(), self.path / _MANIFEST)
        sync_folder(self.path)

    def sweep(self, blobs: Collection[str], files: Collection[str]) -> None:
        """Delete all files but these, given by their paths below blobs/ and files/."""
        self.blobs.remove_all_but(blobs)
        for path in [*self._files.iterdir()]:
            if path.name not in files:
                path.unlink()
        for path in self.path.glob(f"*{_PART_SUFFIX}*"):
            path.unlink()


def open_target(path: Path) -> Target:
    """Open a target; make its folder if it is missing.

    Raises BackupUnusable if the folder has files that no backup made, and OSError.
    """
    make_folder(path)
    names = {entry.name for entry in path.iterdir() if _PART_SUFFIX not in entry.name}
    foreign = names - {_MANIFEST, "blobs", "files", "lock", "lost+found"}
    if foreign:
        raise BackupUnusable(
            f"backup {path}: {min(foreign)} isn't part of a backup; take a folder for backups alone"
        )
    return Target(path)
