"""Blobs: the stored bytes of profiles, immutable objects of the storage, written create-only.

    <service>/<type>/<key>=<value>/…/<YYYY-MM-DD>/<time_nanos>-<sha256 of the bare protobuf>.pb.gz
    <same stem>.inputs      beside a combined blob: the profiles inside it, by time, sha256 and series

A combined blob is sealed with the same text, so .inputs can be restored from it: see `blobs.seals`.

Labels are percent-encoded and sorted by key. A label that a roll-up dropped has no value.

A blob's name and content are durable before `keep` returns. The catalog says which blobs count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pgo_collector.blobs.files import sync_file
from pgo_collector.blobs.seals import FOOTER_BYTES, read_seal, seal, seal_size
from pgo_collector.blobs.storage import NewBlob, Storage
from pgo_collector.errors import InputsDamaged, StorageFails
from pgo_collector.model.blob_names import BlobName, Identity, inputs_name
from pgo_collector.model.series import Series

# Stands for no labels in a line of .inputs; it parses as an empty text does.
_NO_LABELS = ","


class Content(NamedTuple):
    """The bytes of a blob, `size` of them, or the file that they are in."""

    content: bytes | Path
    size: int


class Blobs:
    """The blobs in a storage. Methods block, and raise OSError."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def size(self, name: BlobName) -> int:
        """Return a blob's size in bytes; MISSING if it isn't there."""
        return self.storage.size(str(name))

    def written_nanos(self, name: BlobName) -> int:
        """Return when a blob was written, in ns since 1970."""
        return self.storage.written_nanos(str(name))

    def create(self, new: Mapping[BlobName, Content]) -> dict[BlobName, OSError]:
        """Store blobs that no blob counts, durably; return the errors of those that failed.

        Files that a failed attempt has left under their names are replaced.
        """
        texts = {str(name): name for name in new}
        blobs = [NewBlob(text, inputs_name(text), *new[name]) for text, name in texts.items()]
        return {texts[text]: error for text, error in self.storage.create(blobs).items()}

    def keep(self, part: Path, name: BlobName, inputs: Iterable[BlobName]) -> int:
        """Seal the file `part` and store it as a combined blob, durably; return the size of .inputs in bytes.

        .inputs is written first, so that the blob is never there without it.
        """
        text = _text(name, inputs)
        with part.open("ab") as file:
            file.write(seal(text))
            size = file.tell()
        sync_file(part)  # before any name of it, as .inputs is one
        self._write_inputs(name, text)
        for error in self.storage.create([NewBlob(str(name), "", part, size)]).values():
            raise error
        return len(text)

    def write_inputs(self, name: BlobName, inputs: Iterable[BlobName]) -> int:
        """Write .inputs and the seal of a blob, durably; return the size of .inputs in bytes.

        Each is replaced atomically. A line has labels only if its profile is of another series than the blob.
        """
        text = _text(name, inputs)
        self._write_inputs(name, text)
        self._seal(name, text)
        return len(text)

    def are_sealed(self, sizes: Mapping[BlobName, int]) -> Iterator[bool | None]:
        """Yield for each combined blob, given with its size, whether it has a seal; None if it can't be read.

        Raises StorageFails.
        """
        footers = self.storage.read_all(map(str, sizes), FOOTER_BYTES)
        for size, footer in zip(sizes.values(), footers, strict=True):
            yield None if isinstance(footer, OSError) else 0 < seal_size(footer) <= size

    def seal(self, name: BlobName) -> None:
        """Seal a combined blob with the text of its .inputs. Raises InputsDamaged, and OSError."""
        self._seal(name, self._read_text(name))

    def restore_inputs(self, names: Sequence[BlobName]) -> dict[BlobName, int]:
        """Write the .inputs of blobs from their seals; return the size in bytes of each.

        A blob without a valid seal is left out, and so is one that can't be read, or whose .inputs can't be
        written. Raises StorageFails.
        """
        restored = {}
        footers = self.storage.read_all(map(str, names), FOOTER_BYTES)
        for name, footer in zip(names, footers, strict=True):
            if isinstance(footer, OSError) or not (size := seal_size(footer)):
                continue
            try:
                text = read_seal(self.storage.read(str(name), size))
                if text is not None and inputs_are_whole(text):
                    self._write_inputs(name, text)
                    restored[name] = len(text)
            except StorageFails:
                raise
            except OSError:
                continue
        return restored

    def _seal(self, name: BlobName, text: bytes) -> None:
        content = self.storage.read(str(name))
        size = seal_size(content)
        bare = content[: len(content) - size] if size <= len(content) else content
        self.storage.replace(str(name), bare + seal(text))

    def _write_inputs(self, name: BlobName, text: bytes) -> None:
        self.storage.replace(inputs_name(str(name)), text)

    def read_inputs(self, name: BlobName) -> set[BlobName]:
        """Return the profiles inside a combined blob.

        If .inputs is missing or damaged, it is written again from the seal. Raises InputsDamaged, and
        OSError.
        """
        try:
            text = self._read_text(name)
        except (InputsDamaged, FileNotFoundError):
            if not self.restore_inputs([name]):
                raise
            text = self._read_text(name)
        return {_input(line, name.series) for line in text.decode().splitlines()[1:]}

    def _read_text(self, name: BlobName) -> bytes:
        inputs = inputs_name(str(name))
        content = self.storage.read(inputs)
        if not inputs_are_whole(content):
            raise InputsDamaged(f"{self.storage.where(inputs)} is damaged: its checksum is wrong")
        return content

    def discard(self, name: BlobName) -> None:
        """Delete a blob, then its .inputs, if they are there."""
        for error in self.discard_all([name]).values():
            raise error

    def discard_all(self, names: Iterable[BlobName]) -> dict[BlobName, OSError]:
        """Do the same as `discard` for many blobs; return the errors of those that couldn't be deleted."""
        texts = {str(name): name for name in names}
        failures = self.storage.delete([*texts])
        beside = {inputs_name(text): text for text in texts if text not in failures}
        failures |= {beside[inputs]: error for inputs, error in self.storage.delete([*beside]).items()}
        return {texts[text]: error for text, error in failures.items()}

    def remove_folders(self, names: Iterable[BlobName]) -> None:
        """Remove the folders of these blobs that are empty, and the empty folders above them.

        Call it with `Store.write`, on its thread.
        """
        self.storage.remove_folders({str(name).rpartition("/")[0] for name in names})


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
