"""A backup: the catalog of one moment, and the blobs that it names.

The catalog is copied first. Combines, roll-ups and retention may then delete blobs that it names, since what
replaces them is in a later one: so if any was gone, it is all done again with the catalog as it then is, for
which only what is new has to be copied. What is gone twice in a row was missing before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from pgo_collector.backups.copying import Folder, checked_blob, checked_inputs
from pgo_collector.backups.target import Manifest, Target, open_target
from pgo_collector.catalog.catalog_file import (
    Stored,
    copy_catalog,
    counted_profiles,
    made_nanos,
    reading_catalog,
    stored_blobs,
    version_of,
)
from pgo_collector.catalog.tables import VERSION
from pgo_collector.errors import BackupUnusable, CopyDamaged
from pgo_collector.model.blob_names import BLOB_SUFFIX
from pgo_collector.store.blobs import INPUTS_SUFFIX
from pgo_collector.store.folder import CATALOG

_ROUNDS = 20


@dataclass(slots=True)
class Report:
    """What became of a backup or a restore; `lost` is what could not be copied, and why."""

    blobs: int = 0
    releases: int = 0
    copied_bytes: int = 0
    lost: list[str] = field(default_factory=list)


def back_up(directory: Path, path: Path) -> Report:
    """Copies the data folder `directory` to the target at `path`.

    Raises BackupUnusable, OSError, and sqlite3.Error if the catalog can't be read.
    """
    if not (directory / CATALOG).exists():
        raise BackupUnusable(f"data folder {directory}: there is no catalog, and so nothing to be backed up")
    with open_target(path) as target, Folder(directory / "blobs") as blobs:
        return _Backup(directory, blobs, target).run()


class _Unreadable(Exception):
    """A file of the data folder can't be read, though it is there."""

    def __init__(self, name: str, reason: str | None) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason


class _Backup:
    def __init__(self, directory: Path, blobs: Folder, target: Target) -> None:
        self._catalog = directory / CATALOG
        self._blobs = blobs
        self._releases = directory / "releases"
        self._target = target
        self._profiles = 0
        self._report = Report()

    def run(self) -> Report:
        gone: set[str] = set()
        for _ in range(_ROUNDS):
            catalog, blobs = self._snapshot()
            before, gone, damaged = gone, *self._copy(blobs)
            if gone <= before:
                break
        else:
            raise BackupUnusable(
                f"data folder {self._blobs.path.parent}: it changes faster than it can be copied"
            )
        self._report.blobs = len(blobs) - len(gone) - len(damaged)
        self._report.lost = [f"{self._blobs.path / name} is missing" for name in sorted(gone)] + damaged
        releases = self._copy_releases()
        self._report.releases = len(releases)
        manifest = Manifest(
            time=datetime.now(UTC),
            version=version("pgo-collector"),
            profiles=self._profiles,
            catalog=catalog,
            releases=releases,
            lost=self._report.lost,
        )
        self._target.commit(manifest)
        self._target.sweep({*_paths(blobs)}, {catalog, *releases.values()})
        return self._report

    def _snapshot(self) -> tuple[str, list[Stored]]:
        """Copies the catalog; its SHA-256, and the live blobs in it."""
        part = self._target.new_part()
        try:
            copy_catalog(self._catalog, part)
            with reading_catalog(part) as connection:
                if version_of(connection) != VERSION:
                    raise BackupUnusable(
                        f"catalog {self._catalog}: it is another version's; use that version"
                    )
                self._profiles = counted_profiles(connection)
                self._refuse_another(made_nanos(connection))
                blobs = [blob for blob in stored_blobs(connection) if blob.live]
            return self._target.keep(part), blobs
        finally:
            part.unlink(missing_ok=True)

    def _refuse_another(self, made: int) -> None:
        """A folder that was lost and begun anew is not to take the place of the backup of what was lost."""
        last = self._target.manifest()
        if last is None or made < last.time.timestamp() * 10**9 or 2 * self._profiles >= last.profiles:
            return
        raise BackupUnusable(
            f"backup {self._target.path}: it is of {last.profiles} profiles, and the catalog was made since "
            f"and has {self._profiles}: restore that backup, or take another folder"
        )

    def _copy(self, blobs: list[Stored]) -> tuple[set[str], list[str]]:
        """Copies what the target hasn't yet; the names of those that are gone, and what is damaged."""
        gone: set[str] = set()
        damaged: list[str] = []
        for blob in blobs:
            try:
                self._copy_blob(blob)
            except FileNotFoundError:
                gone.add(blob.name)
            except _Unreadable as error:
                damaged.append(f"{self._blobs.path / error.name}: {error.reason}")
            except CopyDamaged as error:
                damaged.append(str(error))
        return gone, damaged

    def _copy_blob(self, blob: Stored) -> None:
        if blob.inputs_size:
            name = inputs_of(blob.name)
            content = checked_inputs(self._read(name), self._blobs.path / name)
            there = self._target.blobs.size(name)
            if there is None or self._target.blobs.read(name) != content:
                self._put(content, name)
        there = self._target.blobs.size(blob.name)
        # A combined blob is written anew when it is sealed, with the same profile.
        if there is None or (blob.inputs_size and there != self._blobs.size(blob.name)):
            content = self._read(blob.name)
            self._put(checked_blob(content, self._blobs.path / blob.name, blob.digest), blob.name)

    def _read(self, name: str) -> bytes:
        """Return the content of a file. Raises FileNotFoundError or _Unreadable."""
        try:
            return self._blobs.read(name)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _Unreadable(name, error.strerror) from error

    def _put(self, content: bytes, name: str) -> None:
        self._target.blobs.put(content, self._target.new_part(), name)
        self._report.copied_bytes += len(content)

    def _copy_releases(self) -> dict[str, str]:
        """The SHA-256 of each file of releases/, by its path, as all of them are at one moment."""
        while True:
            before = {*self._release_files()}
            try:
                found = {name: self._target.keep(self._releases / name) for name, *_ in sorted(before)}
            except (FileNotFoundError, CopyDamaged):  # it was deleted or replaced meanwhile
                continue
            if {*self._release_files()} == before:
                return found

    def _release_files(self) -> Iterator[tuple[str, int, int]]:
        """Each with what tells it from one that takes its place."""
        for path in self._releases.glob("*/*/*"):
            try:
                found = path.stat()
            except FileNotFoundError:
                continue
            yield str(path.relative_to(self._releases)), found.st_ino, found.st_mtime_ns


def inputs_of(blob: str) -> str:
    """The path of what lies beside a combined blob."""
    return blob.removesuffix(BLOB_SUFFIX) + INPUTS_SUFFIX


def _paths(blobs: list[Stored]) -> Iterator[str]:
    for blob in blobs:
        yield blob.name
        if blob.inputs_size:
            yield inputs_of(blob.name)
