"""Blobs: the stored bytes of profiles, immutable files on the local disk, written create-only.

    <service>/<type>/<key>=<value>/…/<YYYY-MM-DD>/<time_nanos>-<sha256 of the bare protobuf>.pb.gz
    <same stem>.inputs      beside a combined blob: the profiles inside it, by time, sha256 and series

Labels are percent-encoded, and in the order of their keys. One that a roll-up dropped has no value.

A blob is durable, name and content, before `keep` returns. Which blobs count, the catalog says.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pgo_collector.engine.stored import BLOB_SUFFIX, blob_name
from pgo_collector.errors import InputsDamaged, LabelsInvalid
from pgo_collector.store.folder import DataFolder, make_folder, remove_part, sync_file, sync_folder
from pgo_collector.store.series import SERVICE_PATTERN, Series

INPUTS_SUFFIX = ".inputs"
MISSING = -1
_NAME = re.compile(
    rf"(?P<service>{SERVICE_PATTERN})/(?P<type>[a-z]+)/(?P<labels>(?:[^/=]+=[^/=]*/)*)\d{{4}}-\d{{2}}-\d{{2}}/"
    r"(?P<time_nanos>-?\d{1,19})-(?P<digest>[0-9a-f]{64})\.pb\.gz"
)
# As good as an empty text, and seen.
_NO_LABELS = ","


class Identity(NamedTuple):
    """What makes a profile one within its series, however often it is sent; sorts in canonical order."""

    time_nanos: int
    digest: str


class BlobName(NamedTuple):
    """A blob's place; its text is the path below blobs/. So is every profile inside a combined one called."""

    series: Series
    identity: Identity

    def __str__(self) -> str:
        return blob_name(_folders(self.series), *self.identity)

    @classmethod
    def parse(cls, text: str) -> BlobName | None:
        """The name of such a path, None if it isn't one that we give."""
        match = _NAME.fullmatch(text)
        if match is None or not -(1 << 63) <= int(match["time_nanos"]) < 1 << 63:
            return None
        try:
            labels_text = match["labels"].rstrip("/").replace("/", ",")
            series = Series.parse(match["service"], match["type"], labels_text)
        except LabelsInvalid:
            return None
        name = cls(series, Identity(int(match["time_nanos"]), match["digest"]))
        return name if str(name) == text else None


class Blobs:
    """The folder blobs/. Its methods block, and raise OSError."""

    def __init__(self, folder: DataFolder) -> None:
        self._root = folder.blobs
        self._new_part = folder.new_part
        self._durable: set[Path] = set()

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

    def keep(self, part: Path, name: BlobName, inputs: Iterable[BlobName] = ()) -> int:
        """Links the file `part` under its name and makes all of it durable; the size of .inputs in bytes.

        With `inputs` the blob is a combined one; they are written first, so that it never stands there
        without. Raises FileExistsError if the name is taken.
        """
        sync_file(part)
        self._prepare(self.path(name).parent)
        inputs_size = self.write_inputs(name, inputs) if inputs else 0
        sync_folder(self.place(part, name))
        return inputs_size

    def place(self, part: Path, name: BlobName) -> Path:
        """Links the file `part`, whose content is durable, under its name; that is durable when the folder is
        synced which this returns. Raises FileExistsError if the name is taken.
        """
        path = self.path(name)
        self._prepare(path.parent)
        os.link(part, path)
        return path.parent

    def write_inputs(self, name: BlobName, inputs: Iterable[BlobName]) -> int:
        """Writes or replaces, at once and durably, which profiles are inside a blob; the size in bytes.

        The series of a line is that of the blob, unless labels say that it is another.
        """
        ordered = sorted(inputs, key=lambda each: (each.identity, each.series))
        lines = "".join(_line(each, name.series) for each in ordered).encode()
        text = _checksum(lines) + lines
        path, part = self._inputs_path(name), self._new_part()
        try:
            part.write_bytes(text)
            sync_file(part)
            part.replace(path)
        finally:
            remove_part(part)
        sync_folder(path.parent)
        return len(text)

    def read_inputs(self, name: BlobName) -> set[BlobName]:
        """The profiles inside a combined blob. Raises InputsDamaged, and OSError."""
        path = self._inputs_path(name)
        content = path.read_bytes()
        if not inputs_are_whole(content):
            raise InputsDamaged(f"{path} is not as it was written")
        return {_input(line, name.series) for line in content.decode().splitlines()[1:]}

    def discard(self, name: BlobName) -> None:
        """Removes a blob, then its .inputs; nothing if they are gone."""
        self.path(name).unlink(missing_ok=True)
        self._inputs_path(name).unlink(missing_ok=True)

    def sweep_folders(self) -> None:
        """At a start: removes folders in which nothing is any more."""
        for folder, _, _ in os.walk(self._root, topdown=False):
            if not any(Path(folder).iterdir()) and Path(folder) != self._root:
                Path(folder).rmdir()

    def _prepare(self, folder: Path) -> None:
        """Makes a folder, durably.

        Once in each process this is done to the end even where the folder is there: the process that
        made it may have died before it was durable.
        """
        if folder in self._durable:
            return
        make_folder(folder)
        while folder != self._root:
            self._durable.add(folder)
            folder = folder.parent
            sync_folder(folder)

    def _inputs_path(self, name: BlobName) -> Path:
        path = self.path(name)
        return path.with_name(path.name.removesuffix(BLOB_SUFFIX) + INPUTS_SUFFIX)


def inputs_are_whole(content: bytes) -> bool:
    """Whether all of an .inputs is as it was written."""
    checksum, newline, lines = content.partition(b"\n")
    return checksum + newline == _checksum(lines)


@lru_cache(maxsize=1 << 14)
def _folders(series: Series) -> str:
    """The series' folders; of thousands of names most have some series in common."""
    return series.folders


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
