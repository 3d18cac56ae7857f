"""Blobs: the stored bytes of profiles, immutable files on the local disk, written create-only.

    <service>/<type>/<key>=<value>/…/<YYYY-MM-DD>/<time_nanos>-<sha256 of the bare protobuf>.pb.gz
    <same stem>.inputs      beside a combined blob: the profiles inside it, by time, sha256 and series

A combined blob is sealed with the same text, so .inputs can be had from it again: see `seals`.

Labels are percent-encoded, and in the order of their keys. One that a roll-up dropped has no value.

A blob is durable, name and content, before `keep` returns. Which blobs count, the catalog says.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from pgo_collector.engine.seals import read_seal, seal, seal_size
from pgo_collector.errors import InputsDamaged
from pgo_collector.model.blob_names import BLOB_SUFFIX, BlobName, Identity
from pgo_collector.model.series import Series
from pgo_collector.store.folder import (
    DataFolder,
    make_folder,
    remove_empty,
    remove_part,
    sync_file,
    sync_folder,
    write_file,
)

INPUTS_SUFFIX = ".inputs"
MISSING = -1
# As good as an empty text, and seen.
_NO_LABELS = ","


class Blobs:
    """The folder blobs/. Its methods block, and raise OSError."""

    def __init__(self, folder: DataFolder) -> None:
        self._root = folder.blobs
        self._new_part = folder.new_part

    def path(self, name: BlobName) -> Path:
        """Where a blob's file is."""
        return self._root / str(name)

    def size(self, name: BlobName) -> int:
        """A blob's size in bytes, MISSING if it isn't there or can't be looked at."""
        try:
            return self.path(name).stat().st_size
        except OSError:
            return MISSING

    def written_nanos(self, name: BlobName) -> int:
        """When a blob came, in ns since 1970. Raises OSError."""
        return self.path(name).stat().st_mtime_ns

    def keep(self, part: Path, name: BlobName, inputs: Iterable[BlobName]) -> int:
        """Links the file `part` as a combined blob, sealed, and makes all of it durable; the size of .inputs
        in bytes.

        These are written first, so that it never stands there without. Raises FileExistsError if the name
        is taken.
        """
        text = _text(name, inputs)
        with part.open("ab") as file:
            file.write(seal(text))
        sync_file(part)
        make_folder(self.path(name).parent)
        self._write_inputs(name, text)
        sync_folder(self.place(part, name))
        return len(text)

    def place(self, part: Path, name: BlobName) -> Path:
        """Links the file `part`, whose content is durable, under its name; that is durable when the folder is
        synced which this returns. Raises FileExistsError if the name is taken.

        A folder that isn't there is made, durably. One that is there was made so by this process, or made
        durable when the data folder was opened.
        """
        path = self.path(name)
        make_folder(path.parent)
        os.link(part, path)
        return path.parent

    def write_inputs(self, name: BlobName, inputs: Iterable[BlobName]) -> int:
        """Writes or replaces, at once and durably, which profiles are inside a blob; the size in bytes.

        The series of a line is that of the blob, unless labels say that it is another.
        """
        text = _text(name, inputs)
        self._write_inputs(name, text)
        self._seal(name, text)
        return len(text)

    def is_sealed(self, name: BlobName) -> bool:
        """Whether a blob says itself what is inside it. Raises OSError."""
        return seal_size(self.path(name)) > 0

    def seal(self, name: BlobName) -> None:
        """Seals a combined blob with what is in its .inputs. Raises InputsDamaged, and OSError."""
        self._seal(name, self._read_text(name))

    def restore_inputs(self, name: BlobName) -> int:
        """Writes the .inputs of a blob from its seal; the size in bytes, 0 if it has none. Raises OSError."""
        text = read_seal(self.path(name))
        if text is None or not inputs_are_whole(text):
            return 0
        self._write_inputs(name, text)
        return len(text)

    def _seal(self, name: BlobName, text: bytes) -> None:
        path, part = self.path(name), self._new_part()
        size = path.stat().st_size - seal_size(path)
        try:
            with path.open("rb") as source, part.open("xb") as file:
                shutil.copyfileobj(source, file)
                file.truncate(size)
                file.seek(size)
                file.write(seal(text))
                file.flush()
                os.fsync(file.fileno())
            shutil.copystat(path, part)
            part.replace(path)
        finally:
            remove_part(part)
        sync_folder(path.parent)

    def _write_inputs(self, name: BlobName, text: bytes) -> None:
        path, part = self._inputs_path(name), self._new_part()
        try:
            write_file(part, text)
            part.replace(path)
        finally:
            remove_part(part)
        sync_folder(path.parent)

    def read_inputs(self, name: BlobName) -> set[BlobName]:
        """The profiles inside a combined blob; from its seal where .inputs is missing or damaged, which is
        then written anew. Raises InputsDamaged, and OSError.
        """
        try:
            text = self._read_text(name)
        except (InputsDamaged, FileNotFoundError):
            if not self.restore_inputs(name):
                raise
            text = self._read_text(name)
        return {_input(line, name.series) for line in text.decode().splitlines()[1:]}

    def _read_text(self, name: BlobName) -> bytes:
        path = self._inputs_path(name)
        content = path.read_bytes()
        if not inputs_are_whole(content):
            raise InputsDamaged(f"{path} is not as it was written")
        return content

    def discard(self, name: BlobName) -> None:
        """Removes a blob, then its .inputs; nothing if they are gone."""
        self.path(name).unlink(missing_ok=True)
        self._inputs_path(name).unlink(missing_ok=True)

    def remove_folders(self, names: Iterable[BlobName]) -> None:
        """Removes the folders in which blobs of these names were, as far as nothing is in them any more.

        To be called on the thread that makes all changes.
        """
        for folder in {self.path(name).parent for name in names}:
            remove_empty(folder, self._root)

    def _inputs_path(self, name: BlobName) -> Path:
        path = self.path(name)
        return path.with_name(path.name.removesuffix(BLOB_SUFFIX) + INPUTS_SUFFIX)


def inputs_are_whole(content: bytes) -> bool:
    """Whether all of an .inputs is as it was written."""
    checksum, newline, lines = content.partition(b"\n")
    return checksum + newline == _checksum(lines)


def _text(name: BlobName, inputs: Iterable[BlobName]) -> bytes:
    """What .inputs of a blob says."""
    ordered = sorted(inputs, key=lambda each: (each.identity, each.series))
    lines = "".join(_line(each, name.series) for each in ordered).encode()
    return _checksum(lines) + lines


def _line(name: BlobName, series: Series) -> str:
    """The line of a profile, beside a blob of that series."""
    labels = "" if name.series == series else f" {name.series.labels_text or _NO_LABELS}"
    return f"{name.identity.time_nanos} {name.identity.digest}{labels}\n"


def _input(line: str, series: Series) -> BlobName:
    time_nanos, digest, *labels = line.split()
    if labels:
        series = Series.parse(series.service, series.type, labels[0])
    return BlobName(series, Identity(int(time_nanos), digest))


def _checksum(lines: bytes) -> bytes:
    """The first line of .inputs: the sha256 of all others."""
    return f"{hashlib.sha256(lines).hexdigest()}\n".encode()
