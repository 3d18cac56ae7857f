"""Damage to the files of a data folder: bytes flipped, ends cut off, files gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

WAYS: Final = ("flipped", "truncated", "deleted")
_BLOB: Final = ".pb.gz"
_INPUTS: Final = ".inputs"
_FLIPPED_BYTES: Final = 3
_PAGE: Final = 4096


def damage(path: Path, way: str, random: Random) -> bool:
    """Damage a file in one of `WAYS`; return whether the file existed and is changed.

    A changed copy replaces the file: a process that has the file open keeps the good one.
    """
    try:
        content = bytearray(path.read_bytes())
        if way == "deleted":
            path.unlink()
            return True
        if not content:
            return False
        if way == "truncated":
            del content[random.randrange(len(content)) :]
        for place in random.sample(range(len(content)), min(_FLIPPED_BYTES, len(content))):
            content[place] ^= 1 << random.randrange(8)
        part = path.with_name(f"{path.name}.damaged")
        part.write_bytes(content)
        part.replace(path)
    except OSError:
        return False  # the collector has deleted it, or its folder, meanwhile
    return True


def zero_pages(path: Path, random: Random, pages: int = 3) -> None:
    """Overwrite some pages of a database with zeros."""
    content = bytearray(path.read_bytes())
    for _ in range(pages):
        begin = random.randrange(max(len(content) // _PAGE, 1)) * _PAGE
        content[begin : begin + _PAGE] = bytes(len(content[begin : begin + _PAGE]))
    path.write_bytes(content)


def files(folder: Path, suffix: str = "") -> list[Path]:
    """Return the files below a folder, in order, whose names end so."""
    return sorted(path for path in folder.rglob(f"*{suffix}") if path.is_file())


def blobs(data: Path) -> list[Path]:
    """Return all blobs of a data folder."""
    return files(data / "blobs", _BLOB)


def inputs(data: Path) -> list[Path]:
    """Return the .inputs of all combined blobs."""
    return files(data / "blobs", _INPUTS)


def digests_of(blob: Path) -> Iterator[str]:
    """Yield the SHA-256 of each profile that a blob counts, as its name and its .inputs tell."""
    yield blob.name.removesuffix(_BLOB).rpartition("-")[2]
    beside = blob.with_name(blob.name.removesuffix(_BLOB) + _INPUTS)
    try:
        lines = beside.read_text().splitlines()[1:]
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        yield line.split()[1]


def blob_of(inputs_path: Path) -> Path:
    """Return the blob that an .inputs is beside."""
    return inputs_path.with_name(inputs_path.name.removesuffix(_INPUTS) + _BLOB)
