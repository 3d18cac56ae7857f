"""Copies of single files: each is complete and durable or not there, and checked against a SHA-256."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

from pgo_collector.blobs.blobs import inputs_are_whole
from pgo_collector.blobs.files import FOLDER_MODE, delete_part, make_folder
from pgo_collector.errors import CopyDamaged

_CHUNK_BYTES = 1 << 20


class Folder:
    """An open folder, whose files are named by paths below it.

    The kernel takes paths of up to 4,095 bytes; here they count from this folder on, not from the root.
    Methods raise OSError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def close(self) -> None:
        """Close the folder."""
        os.close(self._descriptor)

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if it isn't there."""
        try:
            return os.stat(name, dir_fd=self._descriptor).st_size
        except FileNotFoundError:
            return None

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with os.fdopen(os.open(name, os.O_RDONLY, dir_fd=self._descriptor), "rb") as file:
            return file.read()

    def put(self, content: bytes, part: Path, name: str) -> None:
        """Write a file as `part`, then rename it. The caller must sync the folders."""
        _write(content, part)
        try:
            os.replace(part, name, dst_dir_fd=self._descriptor)
        except FileNotFoundError:
            self._make_folders(name)
            os.replace(part, name, dst_dir_fd=self._descriptor)

    def walk(self) -> Iterator[tuple[str, list[str], int]]:
        """Yield each folder after the folders in it: its name, the names of its files, and its descriptor."""
        for folder, _, files, descriptor in os.fwalk(".", topdown=False, dir_fd=self._descriptor):
            yield folder.removeprefix(".").removeprefix("/"), files, descriptor

    def sync(self) -> None:
        """Make the names in all folders durable."""
        for _, _, descriptor in self.walk():
            os.fsync(descriptor)

    def remove_all_but(self, names: Collection[str]) -> None:
        """Delete all files but these, and the folders that are then empty."""
        for folder, files, descriptor in self.walk():
            for file in files:
                if (f"{folder}/{file}" if folder else file) not in names:
                    os.unlink(file, dir_fd=descriptor)
            if folder:
                with suppress(OSError):  # it isn't empty
                    os.rmdir(folder, dir_fd=self._descriptor)

    def _make_folders(self, name: str) -> None:
        parts = name.split("/")[:-1]
        for count in range(1, len(parts) + 1):
            with suppress(FileExistsError):
                os.mkdir("/".join(parts[:count]), FOLDER_MODE, dir_fd=self._descriptor)


def put(content: bytes, part: Path, path: Path) -> None:
    """Write a file as `part`, then rename it to `path`. The caller must sync the folder of `path`."""
    _write(content, part)
    make_folder(path.parent)
    part.replace(path)


def _write(content: bytes, part: Path) -> None:
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def checked_blob(content: bytes, where: str, digest: str) -> bytes:
    """Return the content of a blob if the SHA-256 of its bare protobuf is `digest`. Raises CopyDamaged."""
    try:
        found = hashlib.sha256(gzip.decompress(content)).hexdigest()
    except (OSError, EOFError, zlib.error) as error:
        raise CopyDamaged(f"{where} can't be inflated") from error
    if found != digest:
        raise CopyDamaged(f"{where} isn't what its name says")
    return content


def checked_inputs(content: bytes, where: str) -> bytes:
    """Return the content of an .inputs file if its checksum is right. Raises CopyDamaged."""
    if not inputs_are_whole(content):
        raise CopyDamaged(f"{where} is damaged: its checksum is wrong")
    return content


def sha256_of(file: BinaryIO) -> str:
    """Return the SHA-256 of an open file from its present place on, in hex. Raises OSError."""
    return hashlib.file_digest(cast("BufferedReader", file), "sha256").hexdigest()


def copy_file(source: BinaryIO, where: str, part: Path, path: Path, sha256: str) -> None:
    """Copy an open file to `part`, check its SHA-256, and rename it to `path`; `where` is it in messages.

    Raises CopyDamaged, OSError.
    """
    try:
        with part.open("w+b") as copy:
            shutil.copyfileobj(source, copy)
            copy.seek(0)
            if sha256_of(copy) != sha256:
                raise CopyDamaged(f"{where} is damaged: its SHA-256 is another")
            os.fsync(copy.fileno())
        make_folder(path.parent)
        part.replace(path)
    finally:
        delete_part(part)
