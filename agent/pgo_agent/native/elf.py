"""Find the file of a mapping, and read its build id and segments from it.

The file layout is in elf(5); only 64-bit little-endian files are read.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

from pgo_agent.errors import NotReadable

_MAGIC = b"\x7fELF\x02\x01"
_LOADED, _NOTE = 1, 4
_BUILD_ID = (b"GNU\0", 3)
_HEAD = struct.Struct("<32xQ14xHH4x")
# Where a file's table of sections is, how large its rows are, and how many; and of a row, what kind of
# section it is of, and where that is in the file, and its size.
_SECTIONS, _SECTION = struct.Struct("<40xQ10xHH2x"), struct.Struct("<4xI16xQQ24x")
_SYMBOL_TABLE, _NOTE_SECTION, _DYNAMIC_SYMBOLS = 2, 7, 11
# Of a row, also the number of the section that has its names; and of a symbol, where its name is, the number
# of the section that defines it, and its address.
_NAMED_SECTION, _SYMBOL = struct.Struct("<4xI16xQQI20x"), struct.Struct("<I2xHQ8x")
_ENTRY = struct.Struct("<I4xQQ8xQ8xQ")
# A file's content is chosen by the user who runs it, so every size needs a bound. The kernel runs no program
# with a larger segment table; linkers write notes of a few hundred bytes, and build ids of 8 to 20 bytes.
_MOST_TABLE_BYTES = 64 << 10
_MOST_NOTE_BYTES = 64 << 10
_LONGEST_BUILD_ID = 64
_MOST_SYMBOL_BYTES = 16 << 20  # of a table of symbols, and of their names
_ADDRESSES = 1 << 64


@dataclass(frozen=True, slots=True)
class Segment:
    """`size` bytes at `offset` in the file, to be loaded at `address`."""

    offset: int
    address: int
    size: int


@dataclass(frozen=True, slots=True)
class Elf:
    """A binary: its build id as hex ("" if it has none), and its loaded segments."""

    build_id: str
    segments: tuple[Segment, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the binary at a path. Raises NotReadable if it can't be read or isn't an ELF file."""
        try:
            # O_NONBLOCK: the path may by now be a FIFO that nobody ever writes to.
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                return cls._of(file)
        except OSError as error:
            raise NotReadable(path, error.strerror or str(error)) from error
        except struct.error as error:
            raise NotReadable(path, "an ELF file that is cut off") from error
        except ValueError as error:
            raise NotReadable(path, str(error)) from error

    @classmethod
    def _of(cls, file: BinaryIO) -> Self:
        """Read a binary. Raises ValueError, struct.error if the file is cut off, and OSError."""
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a regular file")
        build_id, segments, note_bytes = "", [], 0
        for entry in _entries(file, status.st_size):
            if entry.kind == _LOADED:
                if max(entry.offset, entry.address) + entry.size > _ADDRESSES:
                    raise ValueError("an ELF file with a segment beyond the end of all addresses")
                segments.append(Segment(entry.offset, entry.address, entry.size))
            elif entry.kind == _NOTE and not build_id:
                note_bytes += entry.size
                if note_bytes > _MOST_NOTE_BYTES:
                    raise ValueError(f"an ELF file with notes of more than {_MOST_NOTE_BYTES} bytes")
                notes = _part(file, status.st_size, entry.offset, entry.size)
                build_id = build_id_of_notes(notes, 8 if entry.alignment == 8 else 4)
        if not build_id:
            with suppress(struct.error):  # what no program needs to run may be damaged, or gone
                build_id = build_id_of_notes(_notes_of_sections(file, status.st_size))
        return cls(build_id, tuple(segments))

    def address_of(self, offset: int) -> int | None:
        """Return the address, as in debug information, of a file offset; None outside of segments."""
        for segment in self.segments:
            if segment.offset <= offset < segment.offset + segment.size:
                return offset - segment.offset + segment.address
        return None


def _notes_of_sections(file: BinaryIO, file_size: int) -> bytes:
    """Return the notes of a file's sections, as far as they may be read. Raises struct.error.

    Go's linker writes two, and a segment that has only the first one, which is Go's own.
    """
    table, row, count = _SECTIONS.unpack(_part(file, file_size, 0, _SECTIONS.size))
    if row != _SECTION.size or count * row > _MOST_TABLE_BYTES:
        return b""
    notes = b""
    for kind, offset, size in _SECTION.iter_unpack(_part(file, file_size, table, count * row)):
        if kind == _NOTE_SECTION and len(notes) + size <= _MOST_NOTE_BYTES:
            part = _part(file, file_size, offset, size)
            notes += part + bytes(-len(part) % 4)
    return notes


def has_symbol_table(path: Path) -> bool:
    """Return whether a binary has a symbol table of its own, and not just that of its interface.

    Raises NotReadable.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            table, row, count = _SECTIONS.unpack(_part(file, size, 0, _SECTIONS.size))
            if row != _SECTION.size:
                return False
            rows = _SECTION.iter_unpack(_part(file, size, table, count * row))
            return any(kind == _SYMBOL_TABLE for kind, _, _ in rows)
    except OSError as error:
        raise NotReadable(path, error.strerror or str(error)) from error
    except struct.error as error:
        raise NotReadable(path, "an ELF file that is cut off") from error


def symbol_addresses(path: Path, names: Iterable[str]) -> dict[str, int]:
    """Return the addresses of those of these symbols that a binary defines, as its segments have them.

    Tables of more than 16 MiB are left out. Raises NotReadable.
    """
    wanted, found = {name.encode() for name in names}, dict[str, int]()
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise NotReadable(path, "not a regular file")
            for kind in (_DYNAMIC_SYMBOLS, _SYMBOL_TABLE):
                for symbols, texts in _symbol_tables(file, status.st_size, kind):
                    found = _found_symbols(symbols, texts, wanted) | found
                if len(found) == len(wanted):
                    break
    except OSError as error:
        raise NotReadable(path, error.strerror or str(error)) from error
    except struct.error as error:
        raise NotReadable(path, "an ELF file that is cut off") from error
    return found


def _symbol_tables(file: BinaryIO, file_size: int, wanted: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the tables of symbols of a kind, each with its names. Raises struct.error."""
    head = _part(file, file_size, 0, _SECTIONS.size)
    table, row, count = _SECTIONS.unpack(head)
    if not head.startswith(_MAGIC) or row != _NAMED_SECTION.size or count * row > _MOST_TABLE_BYTES:
        return
    sections = [*_NAMED_SECTION.iter_unpack(_part(file, file_size, table, count * row))]
    for kind, offset, size, link in sections:
        if kind == wanted and link < count:
            _, text_offset, text_size, _ = sections[link]
            if max(size, text_size) <= _MOST_SYMBOL_BYTES:
                texts = _part(file, file_size, text_offset, text_size)
                yield _part(file, file_size, offset, size - size % _SYMBOL.size), texts


def _found_symbols(symbols: bytes, texts: bytes, names: Iterable[bytes]) -> dict[str, int]:
    # Linkers write a name that another one ends with only once.
    places = {
        found.start(): name.decode()
        for name in names
        for found in re.finditer(re.escape(name) + b"\0", texts)
    }
    if not places:
        return {}
    return {
        places[place]: address
        for place, section, address in _SYMBOL.iter_unpack(symbols)
        if place in places and section
    }


class _Entry(NamedTuple):
    """A row of the segment table. The numbers are unchecked 64-bit values."""

    kind: int
    offset: int
    address: int
    size: int
    alignment: int


def _entries(file: BinaryIO, file_size: int) -> Iterator[_Entry]:
    head = _part(file, file_size, 0, min(file_size, _HEAD.size))
    if not head.startswith(_MAGIC):
        raise ValueError("not an ELF file of 64 bits, little-endian")
    table, entry_size, count = _HEAD.unpack(head)
    if count and entry_size != _ENTRY.size:
        raise ValueError(f"an ELF file whose segments take {entry_size} bytes each, not {_ENTRY.size}")
    if count * _ENTRY.size > _MOST_TABLE_BYTES:
        raise ValueError(f"an ELF file with {count} segments")
    return map(_Entry._make, _ENTRY.iter_unpack(_part(file, file_size, table, count * _ENTRY.size)))


def _part(file: BinaryIO, file_size: int, offset: int, size: int) -> bytes:
    """Return `size` bytes at `offset`. Raises struct.error, before allocating, if the file is shorter."""
    if offset + size > file_size:
        raise struct.error
    file.seek(offset)
    part = file.read(size)
    if len(part) < size:  # the file has just become shorter
        raise struct.error
    return part


def build_id_of_notes(notes: bytes, alignment: int = 4) -> str:
    """Return the GNU build id among ELF notes as hex, or "". Raises struct.error if the notes are cut off.

    A note consists of the sizes of its name and description, its type, its name and its description. Build
    ids that are empty or longer than 64 bytes are ignored.
    """
    position = 0
    while position < len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, position)
        name_at = position + 12
        at = name_at + -(-name_size // 4) * 4
        is_build_id = (notes[name_at : name_at + name_size], kind) == _BUILD_ID
        if is_build_id and 0 < size <= _LONGEST_BUILD_ID:
            if at + size > len(notes):
                raise struct.error
            return notes[at : at + size].hex()
        position = at + -(-size // alignment) * alignment
    return ""


def candidate_paths(file: str, pids: Iterable[int]) -> Iterator[Path]:
    """Yield the paths where a mapped file may be read: its path here, then as each of the processes sees it.

    A process in a container has its own files at the same paths. A path may not exist, or be another file.
    """
    yield Path(file)
    for pid in pids:
        yield Path(f"/proc/{pid}/root{file}")
