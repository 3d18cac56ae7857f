"""The test's side of killer.c: arm it, and read the operations that it has seen."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("killer.c")
CONTROL: Final = struct.Struct("=iiqqii")
ENTRY: Final = struct.Struct("=32s224s")
ENTRIES: Final = 4096


class Mode(IntEnum):
    """The deed of the killer at the operation that it strikes."""

    COUNT = 0  # nothing
    KILL = 1  # the server dies before it
    TORN = 2  # the server dies when half of a write is done
    FULL = 3  # the disk is full: this and all later ones that need space fail with ENOSPC
    SHORT = 4  # the disk is full when half of a write is done, which the write tells its caller


@dataclass(frozen=True, slots=True)
class Operation:
    """A call that changes the disk; `path` is relative to the watched folder."""

    name: str
    path: str

    @property
    def syncs(self) -> bool:
        return self.name in {"fsync", "fdatasync"}

    @property
    def writes(self) -> bool:
        return "write" in self.name or self.name in {"sendfile", "copy_file_range"}

    def __str__(self) -> str:
        return f"{self.name} {self.path or '.'}"


class Killer:
    """Counts operations on disk below `folder`, of processes with `environment`, and strikes at one."""

    def __init__(self, library: Path, control: Path, folder: Path) -> None:
        size = CONTROL.size + ENTRIES * ENTRY.size
        control.write_bytes(bytes(size))
        with control.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), size)
        self.environment: Final = {
            "LD_PRELOAD": str(library),
            "FAULTS_CONTROL": str(control),
            "FAULTS_FOLDER": str(folder.resolve()),
        }

    def arm(self, mode: Mode, target: int = 0) -> None:
        """Count operations from 1 from now on, and strike at number `target`."""
        server: int = CONTROL.unpack_from(self._memory)[4]
        CONTROL.pack_into(self._memory, 0, 0, mode, target, 0, server, 0)
        struct.pack_into("=i", self._memory, 0, 1)

    def arm_next_start(self, mode: Mode, target: int = 0) -> None:
        """Do the same in the next process that starts, from its first operation on."""
        CONTROL.pack_into(self._memory, 0, 1, mode, target, 0, 0, 0)

    def stand_by(self) -> None:
        """Disarm, and take the next process that starts for the server."""
        CONTROL.pack_into(self._memory, 0, 0, 0, 0, 0, 0, 0)

    def disarm(self) -> None:
        """Stop counting and, if the disk was full, let it have space again."""
        struct.pack_into("=i", self._memory, 0, 0)

    @property
    def operations(self) -> list[Operation]:
        """Return the operations since the killer was armed, in order."""
        count: int = CONTROL.unpack_from(self._memory)[3]
        if count > ENTRIES:
            raise OverflowError(f"{count} operations, more than the log of killer.c holds")
        entries = ENTRY.iter_unpack(self._memory[CONTROL.size : CONTROL.size + count * ENTRY.size])
        return [Operation(*(part.partition(b"\0")[0].decode() for part in entry)) for entry in entries]
