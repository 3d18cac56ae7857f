"""Blobs: the stored bytes of profiles, immutable objects of the storage, written create-only.

    <service>/<type>/<key>=<value>/…/<YYYY-MM-DD>/<time_nanos>-<sha256 of the bare protobuf>.pb.gz
    <same stem>.inputs      beside a combined blob: the profiles inside it, by time, sha256 and series

A combined blob has a seal at its end with the same text, so that the two can't be separated:

    gzip of the profile | empty gzip members with the packed inputs | one more, the footer, of a fixed size

Everything after the profile inflates to nothing. So every reader of gzip gets the profile alone, and the
SHA-256 in the blob's name stays that of the bare protobuf. The inputs are in the "extra" field of the
members' headers (RFC 1952, 2.3.1.1), up to 65,000 bytes in each, as the zlib of the text of the .inputs file.

Submitted bodies are stored as they come, but never with a seal: `validation` removes it. Otherwise a client
could pass a profile of its own off as the profiles of others.

Labels are percent-encoded and sorted by key. A label that a roll-up dropped has no value.

A blob's name and content are durable before `keep` returns. The catalog says which blobs count.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from pgo_collector.blobs.files import sync_file
from pgo_collector.blobs.storage import NewBlob, Storage
from pgo_collector.errors import InputsDamaged, StorageFails
from pgo_collector.model.series import BlobName, Identity, Series, inputs_name

# Stands for no labels in a line of .inputs; it parses as an empty text does.
_NO_LABELS = ","
# The beginning of a gzip header: deflate, with an "extra" field, without a time, from an unknown system.
_HEADER = b"\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff"
_SUBFIELD = b"PG"
# The header, with the sizes of the extra field and of the subfield in it.
_BEFORE = struct.Struct(f"<{len(_HEADER)}sH{len(_SUBFIELD)}sH")
# An empty deflate stream, the CRC-32 of nothing, and its size.
_NOTHING = b"\x03\x00" + bytes(8)
_MOST_PAYLOAD = 65_000
# The footer's payload: a magic word, the size of the members before it, and the SHA-256 of their payloads.
_MAGIC = b"pgoinput"
_FOOTER = struct.Struct(f"<{len(_MAGIC)}sQ32s")
FOOTER_BYTES = _BEFORE.size + _FOOTER.size + len(_NOTHING)


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
        content = self.storage.read(str(name))
        size = seal_size(content)
        bare = content[: len(content) - size] if size <= len(content) else content
        self.storage.replace(str(name), bare + seal(text))
        return len(text)

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


def seal(inputs: bytes) -> bytes:
    """Return the seal to append to the gzip of a combined profile; `inputs` is the text of its .inputs."""
    packed = zlib.compress(inputs)
    members = b"".join(
        _member(packed[start : start + _MOST_PAYLOAD]) for start in range(0, len(packed), _MOST_PAYLOAD)
    )
    return members + _member(_FOOTER.pack(_MAGIC, len(members), hashlib.sha256(packed).digest()))


def is_sealed(content: bytes) -> bool:
    """Return whether a file with this content ends as a sealed blob does."""
    return content.endswith(_NOTHING) and _footer(content[-FOOTER_BYTES:]) is not None


def seal_size(tail: bytes) -> int:
    """Return the size in bytes of the seal at the end of a blob, of which `tail` is the end; 0 without a
    seal.

    The last FOOTER_BYTES tell it. A damaged footer may tell more than the blob's size.
    """
    found = _footer(tail[-FOOTER_BYTES:])
    return 0 if found is None else found[0] + FOOTER_BYTES


def read_seal(tail: bytes) -> bytes | None:
    """Return the text of .inputs in a blob's seal, given the end of the blob with all of the seal in it.

    Returns None if there is no seal, or a damaged one.
    """
    size = seal_size(tail)
    footer = _footer(tail[-FOOTER_BYTES:])
    if footer is None or size > len(tail):
        return None
    packed = _payload(tail[-size:-FOOTER_BYTES])
    if hashlib.sha256(packed).digest() != footer[1]:
        return None
    return zlib.decompress(packed)


def _member(payload: bytes) -> bytes:
    """Return a gzip member that inflates to nothing, with the payload in its header."""
    extra = len(payload) + len(_SUBFIELD) + 2
    return _BEFORE.pack(_HEADER, extra, _SUBFIELD, len(payload)) + payload + _NOTHING


def _footer(tail: bytes) -> tuple[int, bytes] | None:
    """Return what a footer has: the size of the members before it, and the SHA-256 of their payloads.

    Returns None if this isn't a footer.
    """
    if len(tail) != FOOTER_BYTES:
        return None
    magic, length, digest = _FOOTER.unpack_from(tail, _BEFORE.size)
    if magic != _MAGIC or tail != _member(tail[_BEFORE.size : -len(_NOTHING)]):
        return None
    return length, digest


def _payload(members: bytes) -> bytes:
    """Return the joined payloads of members. It doesn't check them: those of damaged members are garbage."""
    parts, begin = [], 0
    while begin + _BEFORE.size <= len(members):
        *_, size = _BEFORE.unpack_from(members, begin)
        begin += _BEFORE.size
        parts.append(members[begin : begin + size])
        begin += size + len(_NOTHING)
    return b"".join(parts)
