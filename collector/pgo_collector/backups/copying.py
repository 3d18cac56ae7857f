"""Copies of single files: whole and durable under their name or not there, and checked against a SHA-256."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import zlib
from pathlib import Path

from pgo_collector.errors import CopyDamaged
from pgo_collector.store.blobs import inputs_are_whole
from pgo_collector.store.folder import make_folder

_CHUNK_BYTES = 1 << 20


def put(content: bytes, part: Path, path: Path) -> None:
    """Writes a file as `part` and gives it its name. Who calls this syncs the folder of `path`."""
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    make_folder(path.parent)
    part.replace(path)


def read_blob(path: Path, digest: str) -> bytes:
    """A blob, if the SHA-256 of its bare protobuf is `digest`. Raises CopyDamaged, and OSError."""
    content = path.read_bytes()
    try:
        found = hashlib.sha256(gzip.decompress(content)).hexdigest()
    except (OSError, EOFError, zlib.error) as error:
        raise CopyDamaged(f"{path} can't be inflated") from error
    if found != digest:
        raise CopyDamaged(f"{path} isn't what its name says")
    return content


def read_inputs(path: Path) -> bytes:
    """What lies beside a combined blob. Raises CopyDamaged, and OSError."""
    content = path.read_bytes()
    if not inputs_are_whole(content):
        raise CopyDamaged(f"{path} is not as it was written")
    return content


def sha256_of(path: Path) -> str:
    """Of the file itself. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_file(source: Path, part: Path, path: Path, sha256: str) -> None:
    """Copies a file that has this SHA-256, by way of `part`. Raises CopyDamaged, and OSError."""
    try:
        shutil.copyfile(source, part)
        if sha256_of(part) != sha256:
            raise CopyDamaged(f"{source} isn't what it was")
        with part.open("rb") as file:
            os.fsync(file.fileno())
        make_folder(path.parent)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
