"""What of an ELF file says which build it is, and at which addresses its bytes belong.

The layout is that of elf(5), for 64 bits and little-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pgo_agent.errors import NotReadable

_MAGIC = b"\x7fELF\x02\x01"
_LOADED, _NOTE = 1, 4
_BUILD_ID = (b"GNU\0", 3)


@dataclass(frozen=True, slots=True)
class Segment:
    """`size` bytes at `offset` of the file, that belong at `address`."""

    offset: int
    address: int
    size: int


@dataclass(frozen=True, slots=True)
class Elf:
    """A binary; `build_id` is hexadecimal, empty if it has none."""

    build_id: str
    segments: tuple[Segment, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """The binary at a path. Raises NotReadable, also if it isn't one."""
        try:
            with path.open("rb") as file:
                head = file.read(64)
                if not head.startswith(_MAGIC):
                    raise NotReadable(path, "not an ELF file of 64 bits, little-endian")
                table, entry_size, entries = struct.unpack_from("<32xQ14xHH", head)
                build_id, segments = "", []
                for entry in range(entries):
                    file.seek(table + entry * entry_size)
                    kind, offset, address, size, alignment = struct.unpack("<I4xQQ8xQ8xQ", file.read(56))
                    if kind == _LOADED:
                        segments.append(Segment(offset, address, size))
                    elif kind == _NOTE:
                        file.seek(offset)
                        build_id = build_id or build_id_of_notes(file.read(size), max(alignment, 4))
        except OSError as error:
            raise NotReadable(path, error.strerror or str(error)) from error
        except struct.error as error:
            raise NotReadable(path, "an ELF file that is cut off") from error
        return cls(build_id, tuple(segments))

    def address_of(self, offset: int) -> int | None:
        """The address, as debug information has it, of the byte at an offset of the file."""
        for segment in self.segments:
            if segment.offset <= offset < segment.offset + segment.size:
                return offset - segment.offset + segment.address
        return None


def build_id_of_notes(notes: bytes, alignment: int = 4) -> str:
    """The GNU build id among notes, hexadecimal; empty if there is none. Raises struct.error if they are cut.

    Each note is the sizes of its name and description, its type, and those two.
    """
    position = 0
    while position < len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, position)
        name_at = position + 12
        at = name_at + -(-name_size // 4) * 4
        if (notes[name_at : name_at + name_size], kind) == _BUILD_ID:
            return notes[at : at + size].hex()
        position = at + -(-size // alignment) * alignment
    return ""
