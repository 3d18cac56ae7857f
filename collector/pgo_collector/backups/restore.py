"""A restore: the last whole backup becomes a data folder. Until it is done, no server starts there.

What is damaged in the backup is left out and named: the rest is wanted all the more.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec

from pgo_collector.backups.backup import Report, inputs_of
from pgo_collector.backups.copying import checked_blob, checked_inputs, copy_file, put
from pgo_collector.backups.target import Manifest, Target
from pgo_collector.catalog.catalog_file import reading_catalog, stored_blobs
from pgo_collector.errors import BackupUnusable, CopyDamaged
from pgo_collector.model.blob_names import BlobName
from pgo_collector.store.folder import DataFolder, restoring

P = ParamSpec("P")


def restore(path: Path, directory: Path) -> Report:
    """Copies the target at `path` to the data folder `directory`, which is to be empty.

    One that was cut off is continued. Raises BackupUnusable, FolderUnusable, OSError.
    """
    if not (path / "lock").exists():
        raise BackupUnusable(f"backup {path}: there is none")
    with Target(path, to_read=True) as target:
        manifest = target.manifest()
        if manifest is None:
            raise BackupUnusable(f"backup {path}: no backup was ever finished there")
        with restoring(directory) as folder:
            return _Restore(target, manifest, folder).run()


class _Restore:
    def __init__(self, target: Target, manifest: Manifest, folder: DataFolder) -> None:
        self._target = target
        self._manifest = manifest
        self._folder = folder
        self._report = Report()

    def run(self) -> Report:
        """Restores all that can be."""
        for blob in self._blobs():
            if self._try(self._copy_blob, *blob):
                self._report.blobs += 1
        for name, sha256 in self._manifest.releases.items():
            if self._try(self._copy_file, sha256, self._folder.releases / name):
                self._report.releases += 1
        return self._report

    def _blobs(self) -> Iterator[tuple[str, str, bool]]:
        """Name and digest of each blob that belongs to the backup, and whether it is a combined one.

        Without its catalog these are all there are, and the server makes another catalog of them.
        """
        if self._try(self._copy_file, self._manifest.catalog, self._folder.catalog):
            with reading_catalog(self._folder.catalog) as connection:
                rows = [row for row in stored_blobs(connection) if row.live]
            yield from ((row.name, row.digest, row.inputs_size > 0) for row in rows)
            return
        names = {f"{folder}/{file}" for folder, files, _ in self._target.blobs.walk() for file in files}
        for text in sorted(names):
            name = BlobName.parse(text)
            if name is not None:
                yield text, name.identity.digest, inputs_of(text) in names

    def _copy_blob(self, name: str, digest: str, is_combined: bool) -> None:
        """What lies beside it comes first, as in `Blobs.keep`."""
        blobs, there = self._target.blobs, self._folder.blobs / name
        if is_combined:
            inputs = inputs_of(name)
            self._put(checked_inputs(blobs.read(inputs), blobs.path / inputs), self._folder.blobs / inputs)
        if not there.exists():
            self._put(checked_blob(blobs.read(name), blobs.path / name, digest), there)

    def _put(self, content: bytes, path: Path) -> None:
        put(content, self._folder.new_part(), path)
        self._report.copied_bytes += len(content)

    def _copy_file(self, sha256: str, path: Path) -> None:
        copy_file(self._target.file(sha256), self._folder.new_part(), path, sha256)
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
