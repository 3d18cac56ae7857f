"""Blobs: the stored bytes of profiles, immutable files on the local disk, written create-only.

    <service>/<type>/<key>=<value>/…/<YYYY-MM-DD>/<time_nanos>-<sha256 of the bare protobuf>.pb.gz
    <same stem>.inputs      beside a combined blob: the profiles inside it, by time, sha256 and series

A combined blob is sealed with the same text, so .inputs can be restored from it: see `engine.seals`.

Labels are percent-encoded and sorted by key. A label that a roll-up dropped has no value.

A blob's name and content are durable before `keep` returns. The catalog says which blobs count.
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
# Stands for no labels in a line of .inputs; it parses as an empty text does.
_NO_LABELS = ","


class Blobs:
    """The folder blobs/. Methods block, and raise OSError."""

    def __init__(self, folder: DataFolder) -> None:
        self._root = folder.blobs
        self._new_part = folder.new_part

    def path(self, name: BlobName) -> Path:
        """Return the path of a blob's file."""
        return self._root / str(name)

    def size(self, name: BlobName) -> int:
        """Return a blob's size in bytes; MISSING if there is no such file or it can't be looked at."""
        try:
            return self.path(name).stat().st_size
        except OSError:
            return MISSING

    def written_nanos(self, name: BlobName) -> int:
        """Return when a blob's file was written, in ns since 1970."""
        return self.path(name).stat().st_mtime_ns

    def keep(self, part: Path, name: BlobName, inputs: Iterable[BlobName]) -> int:
        """Seal the file `part` and link it as a combined blob, durably; return the size of .inputs in bytes.

        .inputs is written first, so that the blob is never there without it. Raises FileExistsError if the
        name is taken.
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
        """Link the file `part` under its name and return the folder, which the caller must sync.

        The content of `part` must be durable; the name is when the folder is synced. A missing folder is made
        durably; an existing one was made so, or synced when the data folder was opened. Raises
        FileExistsError if the name is taken.
        """
        path = self.path(name)
        make_folder(path.parent)
        os.link(part, path)
        return path.parent

    def write_inputs(self, name: BlobName, inputs: Iterable[BlobName]) -> int:
        """Write .inputs and the seal of a blob, durably; return the size of .inputs in bytes.

        Each file is replaced atomically. A line has labels only if its profile is of another series than the
        blob.
        """
        text = _text(name, inputs)
        self._write_inputs(name, text)
        self._seal(name, text)
        return len(text)

    def is_sealed(self, name: BlobName) -> bool:
        """Return whether a combined blob has a seal."""
        return seal_size(self.path(name)) > 0

    def seal(self, name: BlobName) -> None:
        """Seal a combined blob with the text of its .inputs. Raises InputsDamaged, and OSError."""
        self._seal(name, self._read_text(name))

    def restore_inputs(self, name: BlobName) -> int:
        """Write a blob's .inputs from its seal; return the size in bytes, 0 if the blob has no valid seal."""
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
        """Return the profiles inside a combined blob.

        If .inputs is missing or damaged, it is written again from the seal. Raises InputsDamaged, and
        OSError.
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
            raise InputsDamaged(f"{path} is damaged: its checksum is wrong")
        return content

    def discard(self, name: BlobName) -> None:
        """Delete a blob, then its .inputs, if they are there."""
        path = f"{self._root}/{name}"
        for each in (path, path.removesuffix(BLOB_SUFFIX) + INPUTS_SUFFIX):
            if os.path.lexists(each):  # before a submit it isn't there, and an error costs more than a look
                Path(each).unlink(missing_ok=True)

    def remove_folders(self, names: Iterable[BlobName]) -> None:
        """Remove the folders of these blobs that are empty, and the empty folders above them.

        Call it with `Store.write`, on its thread.
        """
        for folder in {self.path(name).parent for name in names}:
            remove_empty(folder, self._root)

    def _inputs_path(self, name: BlobName) -> Path:
        path = self.path(name)
        return path.with_name(path.name.removesuffix(BLOB_SUFFIX) + INPUTS_SUFFIX)


def inputs_are_whole(content: bytes) -> bool:
    """Return whether the content of an .inputs file has the right checksum."""
    checksum, newline, lines = content.partition(b"\n")
    return checksum + newline == _checksum(lines)


def _text(name: BlobName, inputs: Iterable[BlobName]) -> bytes:
    """Return the text of a blob's .inputs."""
    ordered = sorted(inputs, key=lambda each: (each.identity, each.series))
    lines = "".join(_line(each, name.series) for each in ordered).encode()
    return _checksum(lines) + lines


def _line(name: BlobName, series: Series) -> str:
    """Return the line of a profile in the .inputs of a blob of this series."""
    labels = "" if name.series == series else f" {name.series.labels_text or _NO_LABELS}"
    return f"{name.identity.time_nanos} {name.identity.digest}{labels}\n"


def _input(line: str, series: Series) -> BlobName:
    time_nanos, digest, *labels = line.split()
    if labels:
        series = Series.parse(series.service, series.type, labels[0])
    return BlobName(series, Identity(int(time_nanos), digest))


def _checksum(lines: bytes) -> bytes:
    """Return the first line of .inputs: the SHA-256 of all other lines."""
    return f"{hashlib.sha256(lines).hexdigest()}\n".encode()
