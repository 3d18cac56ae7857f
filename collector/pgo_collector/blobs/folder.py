"""A folder on the local disk as the storage of blobs: each is a file, written create-only and synced."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pgo_collector.blobs.copies import Copies
from pgo_collector.blobs.files import (
    delete_part,
    make_folder,
    new_part,
    open_written,
    remove_empty,
    sync_file,
    sync_folder,
    write_file,
)
from pgo_collector.blobs.storage import MISSING, Change, Listed, Lister, NewBlob, Stored
from pgo_collector.traces.spans import span

# Bytes of a path, as Linux takes it.
_LONGEST_PATH = 4095


class FolderStorage(NamedTuple):
    """The files below `root`. They are written in the folder `incoming`, on the same file system."""

    root: Path
    incoming: Path
    longest_wait: float = 0.0
    longest_name: int = _LONGEST_PATH

    def area(self, name: str) -> FolderStorage:
        """Return the folder of this name beside this one."""
        return self._replace(root=self.root.parent / name)

    def where(self, name: str = "") -> str:
        """Return a file's path."""
        return str(self.root / name)

    def verify(self) -> None:
        """Do nothing: who opens the data folder finds out."""

    def ping(self) -> None:
        """Look at the folder. Raises OSError."""
        self.root.stat()

    def size(self, name: str) -> int:
        """Return a file's size; MISSING, too, if it can't be looked at."""
        try:
            return os.stat(f"{self.root}/{name}").st_size  # noqa: PTH116 - a path object takes longer
        except OSError:
            return MISSING

    def written_nanos(self, name: str) -> int:
        """Return a file's mtime."""
        return (self.root / name).stat().st_mtime_ns

    def open(self, name: str) -> BinaryIO:
        """Open a file."""
        return (self.root / name).open("rb")

    def open_local(self, name: str, version: str, copies: Copies, sha256: str = "") -> BinaryIO:  # noqa: ARG002
        """Open a file: it is on the local disk."""
        return self.open(name)

    def read(self, name: str, last: int | None = None) -> bytes:
        """Read a file, or its end."""
        with open(f"{self.root}/{name}", "rb", buffering=0) as file:  # noqa: PTH123 - as in `size`
            if last is not None:
                file.seek(max(file.seek(0, os.SEEK_END) - last, 0))
            return file.readall()

    def read_all(self, names: Iterable[str], last: int | None = None) -> Iterator[bytes | OSError]:
        """Read files one after another."""
        for name in names:
            try:
                yield self.read(name, last)
            except OSError as error:
                yield error

    def create(self, blobs: Sequence[NewBlob]) -> dict[str, OSError]:
        """Link the parts under their names. Each folder is synced once, for all blobs that go into it.

        A missing folder is made durably; an existing one was made so, or synced when the data folder was
        opened. Few submits are the first of their folder, so it is only looked for when it is missing.
        """
        parts = {
            blob.name: blob.content if isinstance(blob.content, Path) else new_part(self.incoming)
            for blob in blobs
        }
        folders: dict[str, list[str]] = {}
        try:
            failures = _write_all(blobs, parts)
            for blob in blobs:
                if blob.name in failures:
                    continue
                try:
                    # Before a submit it isn't there, and an error costs more than a look.
                    if blob.beside and os.path.lexists(f"{self.root}/{blob.beside}"):
                        self._delete(blob.beside)
                    path = f"{self.root}/{blob.name}"
                    folder = os.path.dirname(path)  # noqa: PTH120 - as in `size`
                    try:
                        os.link(parts[blob.name], path)
                    except (FileNotFoundError, FileExistsError):
                        make_folder(Path(folder))
                        self._delete(blob.name)
                        os.link(parts[blob.name], path)
                    folders.setdefault(folder, []).append(blob.name)
                except OSError as error:
                    failures[blob.name] = error
        finally:
            for blob in blobs:
                if parts[blob.name] is not blob.content:
                    delete_part(parts[blob.name])
        for each, inside in folders.items():
            try:
                with span("store", "fsync folder"):
                    sync_folder(each)
            except OSError as error:
                failures.update(dict.fromkeys(inside, error))
        return failures

    def replace(self, name: str, content: bytes) -> None:
        """Write a part, and rename it."""
        path, part = self.root / name, new_part(self.incoming)
        make_folder(path.parent)
        try:
            write_file(part, content)
            part.replace(path)
        finally:
            delete_part(part)
        sync_folder(path.parent)

    def upload(self, name: str, part: Path) -> None:
        """Rename the file, which must be on the same file system."""
        path = self.root / name
        sync_file(part)
        make_folder(path.parent)
        part.replace(path)
        sync_folder(path.parent)

    def add(self, name: str, content: bytes | Path, *, durably: bool = True) -> None:
        """Link a part under the name."""
        path, part = self.root / name, content if isinstance(content, Path) else new_part(self.incoming)
        make_folder(path.parent)
        try:
            file = os.open(part, os.O_RDONLY) if isinstance(content, Path) else open_written(part, content)
            try:
                if durably:
                    os.fsync(file)
            finally:
                os.close(file)
            os.link(part, path)
        finally:
            if part != content:
                delete_part(part)
        try:
            if durably:
                sync_folder(path.parent)
        except OSError:
            self._delete(name)
            raise

    def update(self, name: str, change: Change) -> bool:
        """Read a file, and replace it."""
        try:
            content = self.read(name)
        except FileNotFoundError:
            content = None
        new = change(content)
        if new is not None:
            self.replace(name, new)
        return new is not None

    def delete(self, names: Sequence[str], *, durably: bool = False) -> dict[str, OSError]:
        """Delete files; to do it durably, sync the folder of each."""
        failures: dict[str, OSError] = {}
        for name in names:
            try:
                self._delete(name)
                if durably:
                    with suppress(FileNotFoundError):
                        sync_folder((self.root / name).parent)
            except OSError as error:
                failures[name] = error
        return failures

    def _delete(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    def remove_folders(self, folders: Iterable[str]) -> None:
        """Remove empty folders."""
        for folder in folders:
            remove_empty(self.root / folder, self.root)

    def lister(self) -> Lister:
        """Return a function that lists one folder. It looks at a file only for its size."""
        return self._listed

    def _listed(self, folder: str) -> Listed | None:
        path = f"{self.root}/{folder}"
        folders, files = [], set()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    else:
                        files.add(entry.name)
        except OSError:
            return None
        return Listed(folders, files, lambda name: os.stat(f"{path}/{name}").st_size)  # noqa: PTH116

    def objects(self, folder: str = "") -> Iterator[Stored]:
        """Yield all files; one that is deleted meanwhile is left out."""
        for inside, _, files in os.walk(self.root / folder):
            below = os.path.relpath(inside, self.root)
            for name in files:
                try:
                    found = os.stat(f"{inside}/{name}")  # noqa: PTH116
                except FileNotFoundError:
                    continue
                path = name if below == "." else f"{below}/{name}"
                yield Stored(path, found.st_size, found.st_mtime_ns, _version(found))

    def versions(self, folder: str, moment: int) -> dict[str, str]:  # noqa: ARG002
        """Look at each file."""
        found = {}
        with suppress(FileNotFoundError), os.scandir(self.root / folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    found[entry.name] = _version(entry.stat())
        return found


def _write_all(blobs: Sequence[NewBlob], parts: Mapping[str, Path]) -> dict[str, OSError]:
    """Make the parts of blobs durable; return the errors of those that couldn't be written."""
    failures: dict[str, OSError] = {}
    written: dict[str, int] = {}
    try:
        for blob in blobs:
            part = parts[blob.name]
            try:
                with span("store", "write blob", size=blob.size):
                    if isinstance(blob.content, bytes):
                        written[blob.name] = open_written(part, blob.content)
                    else:
                        written[blob.name] = os.open(part, os.O_RDONLY)
                    if len(blobs) > 1:
                        # Python has no sync_file_range; this begins to write the file to the disk just the
                        # same, so that many files take half of the time.
                        os.posix_fadvise(written[blob.name], 0, 0, os.POSIX_FADV_DONTNEED)
            except OSError as error:
                failures[blob.name] = error
        with span("store", "fsync blobs"):
            for name, file in written.items():
                try:
                    os.fsync(file)
                except OSError as error:
                    failures[name] = error
    finally:
        for file in written.values():
            os.close(file)
    return failures


def _version(found: os.stat_result) -> str:
    return f"{found.st_mtime_ns}-{found.st_size}-{found.st_ino}"
