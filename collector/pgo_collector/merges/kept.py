"""Kept merges: the newest finished merges, on disk until others take their place, each with its record.

They are a cache in the data folder of one collector, and no other one knows of them:

    <fingerprint>.merge     the merge | its record, as JSON | the record's size and SHA-256

The fingerprint is of the blobs and the rendition: see `fingerprint_of`. A merge and its record are in
one file, which is renamed into place, so a process that is killed leaves both or neither. Nothing is synced:
a file that isn't what was written, as after a power cut, is deleted, and its merge is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import structlog

from pgo_collector.blobs.files import delete_or_log
from pgo_collector.engine.merge_inputs import ENGINE
from pgo_collector.engine.renditions import PLAIN_RENDITION, Rendition
from pgo_collector.engine.tasks import MergeResult
from pgo_collector.merges.making import OpenMerge
from pgo_collector.model.facts import NAMED_LEFT_OUT, LeftOut
from pgo_collector.model.selection import EXACT, Coarse
from pgo_collector.store.folder import log_unknown_file

_SUFFIX = ".merge"
# The end of the file: the size of the record in bytes, and its SHA-256.
_FOOTER = struct.Struct("<Q32s")
# How long a file counts as whole after a check, as long as it is the same file.
_TRUSTED_SECONDS = 600.0
_CHUNK_BYTES = 1 << 20
# What `_read` returns for a file that can't be served.
_NONE = (None, "")
_log = structlog.get_logger()

# Inode, size in bytes, and the times of its last modification and change, in ns.
_FileIdentity = tuple[int, int, int, int]


@dataclass(slots=True, eq=False)
class _Entry:
    """A kept merge: its path, and the file that was found to be whole, and when, by the monotonic clock."""

    path: Path
    checked: tuple[_FileIdentity, float] | None = None


def fingerprint_of(blobs: str, rendition: Rendition, symbols: str = "") -> str:
    """Return the fingerprint of a rendition of a merge, as hex.

    `blobs` is the fingerprint of its blobs, and `symbols` that of what names its functions. It changes with
    all that the merge depends on, also with the format, rules, weights, samples, programs and the engine.
    """
    weighting, binaries = rendition.weighting, rendition.binaries
    programs = ",".join(f"{each.build_id}={each.sha256}" for each in binaries.stored)
    parts = (
        ENGINE,
        blobs,
        rendition.format.name,
        "" if rendition.rules == PLAIN_RENDITION.rules else str(rendition.rules),
        weighting.by,
        str(weighting.half_life),
        str(weighting.services),
        str(tuple(rendition.latencies)),
        str(tuple(rendition.patterns)),
        str(rendition.trim_path),
        f"{programs}{'!' if binaries.is_named else ''}",
        str(rendition.every_label),
        f"{rendition.symbolize} {symbols}",
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class KeptMerges:
    """The newest `most` merges in a folder. Methods block; any thread may call them.

    In memory there is one small entry for each, since records are read from the files.

    Checking the SHA-256 costs CPU time in proportion to the size. So a file is checked when this process
    first serves it, when it isn't the same file any more, and again after a while: its pages in the kernel's
    memory don't change on their own.
    """

    def __init__(self, folder: Path, most: int) -> None:
        """Find the merges in the folder, and delete files that aren't kept merges. Raises OSError."""
        self._folder = folder
        self._most = most
        # By fingerprint, the oldest first.
        self._kept: dict[str, _Entry] = {}
        self._lock = threading.Lock()
        found = []
        for path in folder.iterdir():
            if path.suffix != _SUFFIX:
                log_unknown_file(str(path))
            elif (written_nanos := _written_nanos(path)) is not None:
                found.append((written_nanos, path))
            else:
                delete_or_log(path)
        with self._lock:
            self._kept = {path.stem: _Entry(path) for _, path in sorted(found)}
            self._drop_oldest()

    def __contains__(self, fingerprint: str) -> bool:
        """Return whether a merge was kept; `open` tells whether it can be served. Reads nothing."""
        return fingerprint in self._kept

    def open(self, fingerprint: str, coarse: Coarse) -> OpenMerge | None:
        """Return a kept merge; None if there is none, or its file is damaged, and is deleted now.

        Raises OSError.
        """
        entry = self._kept.get(fingerprint)
        if entry is None:
            return None
        with ExitStack() as files, suppress(FileNotFoundError):
            file = files.enter_context(entry.path.open("rb"))
            merge, sha256 = _read(file, coarse)
            if merge is not None and _is_whole(entry, merge, sha256):
                file.seek(0)
                files.pop_all()
                return merge
            _log.warning("kept merge damaged", file=str(entry.path))
        self._drop(fingerprint, entry)
        return None

    def keep(self, fingerprint: str, part: Path, made: MergeResult, coarse: Coarse) -> OpenMerge:
        """Keep a merge that was just made in the file `part`, which is moved here, and return it.

        The oldest merges beyond the bound are deleted. Raises OSError.
        """
        path = self._folder / f"{fingerprint}{_SUFFIX}"
        with part.open("ab") as end:
            end.write(_record_of(made))
        with self._lock:
            part.replace(path)
            merge = OpenMerge.at(path, made, coarse)
            self._kept.pop(fingerprint, None)
            self._kept[fingerprint] = _Entry(path)
            self._drop_oldest()
        return merge

    def clear(self) -> None:
        """Delete all merges."""
        with self._lock:
            while self._kept:
                delete_or_log(self._kept.popitem()[1].path)

    def _drop(self, fingerprint: str, entry: _Entry) -> None:
        with self._lock:
            if self._kept.get(fingerprint) is entry:  # else the merge was made again meanwhile, or dropped
                del self._kept[fingerprint]
                delete_or_log(entry.path)

    def _drop_oldest(self) -> None:
        for fingerprint in [*self._kept][: -self._most]:
            delete_or_log(self._kept.pop(fingerprint).path)


def _is_whole(entry: _Entry, merge: OpenMerge, sha256: str) -> bool:
    """Return whether the merge in a file is as it was written, with this SHA-256. Raises OSError."""
    found = os.fstat(merge.file.fileno())
    identity = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    match entry.checked:
        case [checked, at] if checked == identity and time.monotonic() - at < _TRUSTED_SECONDS:
            return True
    if _sha256(merge.file, merge.size) != sha256:
        return False
    entry.checked = identity, time.monotonic()
    return True


def _written_nanos(path: Path) -> int | None:
    """Return when the file of a merge was written, in ns since 1970; None if it can't be served."""
    with suppress(OSError), path.open("rb") as file:
        if _read(file, EXACT)[0] is not None:
            return os.fstat(file.fileno()).st_mtime_ns
    return None


def _record_of(made: MergeResult) -> bytes:
    """Return the record of a merge and the footer, as `_read` reads them."""
    names = [(left.blob, left.reason) for left in made.left_out[:NAMED_LEFT_OUT]]
    record = [made.etag, *made.written, names, len(made.left_out), made.build_id]
    text = json.dumps(record).encode()
    return text + _FOOTER.pack(len(text), hashlib.sha256(text).digest())


def _read(file: BinaryIO, coarse: Coarse) -> tuple[OpenMerge, str] | tuple[None, str]:
    """Return the merge that the record at the end of a file describes, and the SHA-256 of its bytes, in hex.

    Return None and "" if there is no whole record. Raises OSError.
    """
    end = file.seek(0, os.SEEK_END) - _FOOTER.size
    if end < 0:
        return _NONE
    file.seek(end)
    footer = file.read(_FOOTER.size)
    length, digest = _FOOTER.unpack(footer) if len(footer) == _FOOTER.size else (0, b"")
    if length > end:
        return _NONE
    file.seek(end - length)
    text = file.read(length)
    if hashlib.sha256(text).digest() != digest:
        return _NONE
    match json.loads(text):
        case [str(etag), int(size), str(sha256), list(names), int(n), str() | None as build_id]:
            left_out = tuple(LeftOut(blob, reason) for blob, reason in names)
            if size == end - length:
                return OpenMerge(etag, size, left_out, n, coarse, file, build_id), sha256
    return _NONE  # another version's


def _sha256(file: BinaryIO, size: int) -> str:
    """Return the SHA-256 of the first `size` bytes of a file, in hex."""
    file.seek(0)
    digest, left = hashlib.sha256(), size
    while left and (chunk := file.read(min(left, _CHUNK_BYTES))):
        digest.update(chunk)
        left -= len(chunk)
    return digest.hexdigest()
