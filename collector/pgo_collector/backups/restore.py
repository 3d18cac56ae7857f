"""A restore: the last complete backup becomes a data folder. Until it is done, no server starts there.

Damaged files of the backup are left out and reported; everything else is restored.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec

from pgo_collector.backups.backup import Report
from pgo_collector.backups.copying import checked_blob, checked_inputs, copy_file, put
from pgo_collector.backups.target import Manifest, Target
from pgo_collector.catalog.sqlite import SQLite
from pgo_collector.catalog.stored_rows import blob_rows
from pgo_collector.errors import BackupUnusable, CopyDamaged
from pgo_collector.model.series import BlobName, inputs_name
from pgo_collector.store.folder import DataFolder, restoring

P = ParamSpec("P")


def restore(path: Path, directory: Path) -> Report:
    """Restore the target at `path` into the data folder `directory`, which must be empty.

    A restore that was interrupted is continued. Raises BackupUnusable, FolderUnusable and OSError.
    """
    if not (path / "lock").exists():
        raise BackupUnusable(
            f"backup {path}: there is none; name the folder that `pgo-collector backup` wrote"
        )
    with Target(path, to_read=True) as target:
        manifest = target.manifest()
        if manifest is None:
            raise BackupUnusable(f"backup {path}: no backup was ever completed there; run a backup again")
        with restoring(directory) as folder:
            return _Restore(target, manifest, folder).run()


class _Restore:
    def __init__(self, target: Target, manifest: Manifest, folder: DataFolder) -> None:
        self._target = target
        self._manifest = manifest
        self._folder = folder
        self._report = Report()

    def run(self) -> Report:
        """Restore everything that can be restored."""
        for blob in self._blobs():
            if self._try(self._copy_blob, *blob):
                self._report.blobs += 1
        for name, sha256 in self._manifest.releases.items():
            if self._try(self._copy_file, sha256, self._folder.releases / name):
                self._report.releases += 1
        for name, sha256 in self._manifest.start_lines.items():
            self._try(self._copy_file, sha256, self._folder.start_lines / name)
        for name, sha256 in self._manifest.binaries.items():
            self._try(self._copy_file, sha256, self._folder.binaries / name)
        return self._report

    def _blobs(self) -> Iterator[tuple[str, str, bool]]:
        """Yield name and digest of each blob in the backup, and whether it is a combined one.

        If the backup's catalog is damaged, these are all blobs there, and the server rebuilds the catalog
        from them.
        """
        if self._try(self._copy_file, self._manifest.catalog, self._folder.catalog):
            with SQLite(self._folder.catalog).looking() as connection:
                rows = [row for row in blob_rows(connection) if row.live]
            yield from ((row.name, row.digest, row.inputs_size > 0) for row in rows)
            return
        names = {f"{folder}/{file}" for folder, files, _ in self._target.blobs.walk() for file in files}
        for text in sorted(names):
            name = BlobName.parse(text)
            if name is not None:
                yield text, name.identity.digest, inputs_name(text) in names

    def _copy_blob(self, name: str, digest: str, is_combined: bool) -> None:
        """Copy a blob, after its .inputs if it is a combined one, as `Blobs.keep` does."""
        blobs, there = self._target.blobs, self._folder.blobs / name
        if is_combined:
            inputs = inputs_name(name)
            self._put(
                checked_inputs(blobs.read(inputs), str(blobs.path / inputs)), self._folder.blobs / inputs
            )
        if not there.exists():
            self._put(checked_blob(blobs.read(name), str(blobs.path / name), digest), there)

    def _put(self, content: bytes, path: Path) -> None:
        put(content, self._folder.new_part(), path)
        self._report.copied_bytes += len(content)

    def _copy_file(self, sha256: str, path: Path) -> None:
        source = self._target.file(sha256)
        with source.open("rb") as file:
            copy_file(file, str(source), self._folder.new_part(), path, sha256)
        self._report.copied_bytes += path.stat().st_size

    def _try(self, copy: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> bool:
        try:
            copy(*args, **kwargs)
        except FileNotFoundError as error:
            self._report.lost.append(f"{self._target.blobs.path / str(error.filename)} is missing")
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            there = error.filename2 or error.filename
            self._report.lost.append(
                f"{there}: the path is too long; restore into a folder with a shorter one"
            )
        except CopyDamaged as error:
            self._report.lost.append(str(error))
        else:
            return True
        return False
