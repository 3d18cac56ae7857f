"""A merge to be read from its own open file, which stays readable when the next one replaces it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from pgo_collector.engine.collected import LeftOut


@dataclass(frozen=True, slots=True)
class OpenMerge:
    """`etag` is the sha256 of the bare protobuf, hex, for the merge itself; for another form of it the
    sha256 of the file, and the format's name. `size` is that of the file, in bytes.
    """

    etag: str
    size: int
    left_out: tuple[LeftOut, ...]
    file: BinaryIO

    @classmethod
    def at(cls, path: Path, etag: str, left_out: tuple[LeftOut, ...]) -> Self:
        """Opens the file of a merge. Raises OSError."""
        file = path.open("rb")
        return cls(etag, os.fstat(file.fileno()).st_size, left_out, file)
