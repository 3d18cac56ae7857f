"""Copies on the local disk of objects that are elsewhere, for programs that read files: a bounded cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pgo_collector.blobs.files import PART_SUFFIX, delete_or_log, delete_part, new_part


class Copies(NamedTuple):
    """A folder of copies, each of which never changes. Beyond `most_bytes`, those used least lately are
    deleted; who has one open may read on. Several processes use the folder at once.
    """

    folder: Path
    most_bytes: int

    def open(self, key: str, write: Callable[[BinaryIO], None]) -> BinaryIO:
        """Return the copy with this key as an open file; `write` makes it first if it isn't there.

        Raises OSError, and what `write` raises.
        """
        path = self.folder / key
        while True:
            with suppress(FileNotFoundError):  # another process may just have deleted it
                file = path.open("rb")
                os.utime(file.fileno())
                return file
            part = new_part(self.folder)
            try:
                with part.open("xb") as written:
                    write(written)
                part.replace(path)
            finally:
                delete_part(part)
            self._trim(keep=path)

    def delete(self, key: str) -> None:
        """Delete the copy with this key, if it is there: it isn't what it should be."""
        delete_or_log(self.folder / key)

    def _trim(self, keep: Path) -> None:
        found = []
        for path in self.folder.iterdir():
            with suppress(FileNotFoundError):
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_size, path))
        size = 0
        for _, each, path in sorted(found, reverse=True):
            size += each
            if size > self.most_bytes and path != keep and path.suffix != PART_SUFFIX:
                delete_or_log(path)  # the next copy tries again
