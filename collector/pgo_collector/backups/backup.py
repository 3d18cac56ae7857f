"""A backup: the catalog as of one moment, and the blobs that it names.

The catalog is copied first. Combines, roll-ups and retention may then delete blobs that it names. If any is
gone, the catalog is copied again, and then the blobs that are new in it. A blob that is gone twice in a row
was missing before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from pgo_collector.backups.copying import checked_blob, checked_inputs
from pgo_collector.backups.target import Manifest, Target, open_target
from pgo_collector.blobs.files import delete_part
from pgo_collector.blobs.storage import BINARIES, RELEASES, START_LINES, Storage
from pgo_collector.catalog.database import Database
from pgo_collector.catalog.migrations import stored_version
from pgo_collector.catalog.sqlite import SQLite
from pgo_collector.catalog.stored_rows import BlobRow, blob_rows, counted_profiles, made_nanos
from pgo_collector.errors import BackupUnusable, CopyDamaged, StorageFails
from pgo_collector.model.series import inputs_name

_ROUNDS = 20


@dataclass(slots=True)
class Report:
    """The result of a backup or a restore: how many blobs and files of releases it has, the bytes that were
    copied, and in `lost` a message for each file that could not be copied.
    """

    blobs: int = 0
    releases: int = 0
    copied_bytes: int = 0
    lost: list[str] = field(default_factory=list)


def back_up(directory: Path, catalog: Database, blobs: Storage, path: Path) -> Report:
    """Back the data folder `directory`, its catalog and its blobs up to the target at `path`.

    Raises BackupUnusable, OSError, and SQLAlchemyError if the catalog can't be read.
    """
    catalog.check_copyable()
    with open_target(path) as target:
        return _Backup(directory, catalog, blobs, target).run()


class _Unreadable(Exception):
    """A blob or its .inputs is there and can't be read."""

    def __init__(self, name: str, reason: str | None) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason


class _Backup:
    def __init__(self, directory: Path, catalog: Database, blobs: Storage, target: Target) -> None:
        self._directory = directory
        self._catalog = catalog
        self._blobs = blobs
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
                f"data folder {self._directory}: it changes faster than it is copied; try again later"
            )
        self._report.blobs = len(blobs) - len(gone) - len(damaged)
        self._report.lost = [f"{self._blobs.where(name)} is missing" for name in sorted(gone)] + damaged
        releases = self._copy_area(RELEASES)
        self._report.releases = len(releases)
        start_lines = self._copy_area(START_LINES)
        binaries = self._copy_area(BINARIES)
        manifest = Manifest(
            time=datetime.now(UTC),
            version=version("pgo-collector"),
            profiles=self._profiles,
            catalog=catalog,
            releases=releases,
            start_lines=start_lines,
            binaries=binaries,
            lost=self._report.lost,
        )
        self._target.commit(manifest)
        files = {catalog, *releases.values(), *start_lines.values(), *binaries.values()}
        self._target.sweep({*_paths(blobs)}, files)
        return self._report

    def _snapshot(self) -> tuple[str, list[BlobRow]]:
        """Copy the catalog; return its SHA-256 in hex, and the live blobs in it."""
        part = self._target.new_part()
        try:
            self._catalog.copy(part)
            copy = SQLite(part)
            with copy.looking() as connection:
                if not stored_version(connection).is_usable:
                    raise BackupUnusable(
                        f"catalog {self._catalog}: another version of pgo-collector made it; use that one"
                    )
                self._profiles = counted_profiles(connection)
                self._refuse_another(made_nanos(connection))
                blobs = [blob for blob in blob_rows(connection) if blob.live]
            return self._target.add_file(part), blobs
        finally:
            delete_part(part)

    def _refuse_another(self, made: int) -> None:
        """Raise BackupUnusable if the data folder seems lost and begun again: the backup stays then.

        This is so if the catalog was made after the last backup, at `made` in ns since 1970, and has less
        than half of its profiles.
        """
        last = self._target.manifest()
        if last is None or made < last.time.timestamp() * 10**9 or 2 * self._profiles >= last.profiles:
            return
        raise BackupUnusable(
            f"backup {self._target.path}: it has {last.profiles} profiles, and the catalog was made since and"
            f" has {self._profiles}: restore that backup, or take another folder"
        )

    def _copy(self, blobs: list[BlobRow]) -> tuple[set[str], list[str]]:
        """Copy the blobs that the target lacks.

        Returns the names of missing blobs, and a message for each damaged one.
        """
        gone: set[str] = set()
        damaged: list[str] = []
        for blob in blobs:
            try:
                self._copy_blob(blob)
            except FileNotFoundError:
                gone.add(blob.name)
            except _Unreadable as error:
                damaged.append(f"{self._blobs.where(error.name)}: {error.reason}")
            except CopyDamaged as error:
                damaged.append(str(error))
        return gone, damaged

    def _copy_blob(self, blob: BlobRow) -> None:
        if blob.inputs_size:
            name = inputs_name(blob.name)
            content = checked_inputs(self._read(name), self._blobs.where(name))
            there = self._target.blobs.size(name)
            if there is None or self._target.blobs.read(name) != content:
                self._put(content, name)
        there = self._target.blobs.size(blob.name)
        # A damaged seal is written again, with the same profile and maybe another size.
        if there is None or (blob.inputs_size and there != self._blobs.size(blob.name)):
            content = self._read(blob.name)
            self._put(checked_blob(content, self._blobs.where(blob.name), blob.digest), blob.name)

    def _read(self, name: str) -> bytes:
        """Return the content of a file. Raises FileNotFoundError, _Unreadable or StorageFails."""
        try:
            return self._blobs.read(name)
        except (FileNotFoundError, StorageFails):
            raise
        except OSError as error:
            raise _Unreadable(name, error.strerror) from error

    def _put(self, content: bytes, name: str) -> None:
        self._target.blobs.put(content, self._target.new_part(), name)
        self._report.copied_bytes += len(content)

    def _copy_area(self, name: str) -> dict[str, str]:
        """Copy what is beside the blobs as it is at one moment; return the SHA-256 of each by its name."""
        area = self._blobs.area(name)
        while True:
            before = {(of.name, of.version) for of in area.objects()}
            try:
                found = {name: self._target.add_object(area, name) for name, _ in sorted(before)}
            except (FileNotFoundError, CopyDamaged):  # one was deleted or replaced meanwhile
                continue
            if {(of.name, of.version) for of in area.objects()} == before:
                return found


def _paths(blobs: list[BlobRow]) -> Iterator[str]:
    for blob in blobs:
        yield blob.name
        if blob.inputs_size:
            yield inputs_name(blob.name)
