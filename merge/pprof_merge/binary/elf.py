"""Programs: the functions of an ELF file, their code and addresses.

pyelftools reads its tables of sections and segments. The tables of symbols and relocations, which have up to
millions of entries, are read as arrays.
"""

from __future__ import annotations

import io
import mmap
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self, cast

import numpy as np

from pprof_merge.arrays import Int64s, UInt64s
from pprof_merge.errors import BinaryInvalid
from pprof_merge.limits import BinaryLimits

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import NoteSection, Section

# A symbol in ELF (Elf64_Sym), and the type of a symbol that is a function.
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_FUNCTION = 2  # STT_FUNC
_LOCAL = 0  # STB_LOCAL
# An entry of a table of relocations (SHT_RELA), and the type of those that write a pointer into the program.
_RELOCATION = np.dtype([("place", "<u8"), ("type", "<u8"), ("pointer", "<i8")])
_RELATIVE = 8  # R_X86_64_RELATIVE, of symbol 0
# Linkers write build ids of 8 to 20 bytes, or what they are told to; here they are in hex.
_BUILD_ID = re.compile(r"([0-9a-f]{2}){1,64}")
_MOST_NOTES, _MOST_NOTE_BYTES = 16, 4096
_LONGEST_NAME = 32 << 10
_MOST_NAMES = 1 << 30  # bytes of local symbols' names; one may be a part of others
# Reads of pyelftools. It reads a field at a time, and names by 64 bytes: one name may be the whole file.
_MOST_READS = 2_000_000
_LINES = {".debug_line", ".zdebug_line"}
_EXECUTABLE = 4  # SHF_EXECINSTR
_OLD_COMPRESSED = ".zdebug"  # ZLIB, and the size in 8 bytes


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a program: its name, first address, and code, which stays in the file."""

    name: bytes
    start: int
    code: memoryview


class Binary:
    """An ELF program for x86-64, with symbols. Raises BinaryInvalid, also if it is hostile.

    `build_id` is its GNU build id in hex, "" if it has none; `has_lines` says whether it has debug lines, and
    `has_code` whether its code is in the file, as it isn't in a separate file of debug information.
    Needs the extra `binary`: without it, making one raises ModuleNotFoundError.
    """

    def __init__(self, content: bytes | mmap.mmap, limits: BinaryLimits) -> None:
        from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - an extra

        self._content, self._limits = content, limits
        if len(content) > limits.size:
            raise BinaryInvalid(f"it has more than {limits.size:,} bytes")
        if content[:4] != b"\x7fELF":
            raise BinaryInvalid("it is not an ELF file; give the program that was profiled")
        try:
            self._read(ELFFile(cast("IO[bytes]", _Reader(content))))
        except (BinaryInvalid, MemoryError):
            raise
        except Exception as error:  # pyelftools lets out whatever a damaged file makes it do
            raise BinaryInvalid(f"it is a damaged ELF file ({type(error).__name__}: {error})") from error

    @classmethod
    def at(cls, path: str, limits: BinaryLimits) -> Self:
        """Return the program in a file, which stays on disk and must not change. Raises OSError, too."""
        with Path(path).open("rb") as file:
            try:
                content: bytes | mmap.mmap = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:  # an empty file can't be mapped
                content = b""
        return cls(content, limits)

    def _read(self, elf: ELFFile) -> None:
        from elftools.elf.sections import NoteSection  # noqa: PLC0415 - an extra

        if elf["e_machine"] != "EM_X86_64" or elf.elfclass != 64 or not elf.little_endian:
            raise BinaryInvalid(f"it is for {elf['e_machine']}; only x86-64 programs can be read")
        if max(elf.num_sections(), elf.num_segments()) > self._limits.sections:
            raise BinaryInvalid(f"it has more than {self._limits.sections:,} sections or segments")
        self.segments = [
            (int(segment["p_offset"]), int(segment["p_vaddr"]), int(segment["p_filesz"]))
            for segment in elf.iter_segments("PT_LOAD")
        ]
        sections = [*elf.iter_sections()]
        self._check_unpacked(sections)
        self.build_id = ""
        self.has_lines = any(section.name in _LINES for section in sections)
        self.has_code = any(
            section["sh_flags"] & _EXECUTABLE and section["sh_type"] == "SHT_PROGBITS" for section in sections
        )
        self._starts: list[int] = []
        relocations = list[tuple[int, int]]()
        for section in sections:
            if isinstance(section, NoteSection) and section.name == ".note.gnu.build-id":
                self.build_id = _build_id(section)
            elif section["sh_type"] == "SHT_SYMTAB":
                self._read_symbols(section, sections[int(section["sh_link"])])
            elif section["sh_type"] == "SHT_RELA":
                relocations.append((int(section["sh_offset"]), int(section["sh_size"])))
        if not self._starts:
            raise BinaryInvalid("it has no symbol table; give the program before it was stripped")
        self._relocated, self._pointers = self._relative(relocations)

    def _check_unpacked(self, sections: list[Section]) -> None:
        """Check how large llvm-symbolizer would make the sections in the file. Raises BinaryInvalid."""
        total = 0
        for section in sections:
            if section.name.startswith(_OLD_COMPRESSED):
                at = int(section["sh_offset"])
                total += int.from_bytes(self._content[at + 4 : at + 12], "big")
            elif section["sh_type"] != "SHT_NOBITS":
                total += int(section.data_size)
        if total > self._limits.unpacked:
            raise BinaryInvalid(f"its sections take more than {self._limits.unpacked:,} bytes when unpacked")

    def _read_symbols(self, table: Section, names: Section) -> None:
        """Read the first function at each address, and how large it is; its name is read when asked for."""
        offset, size = int(table["sh_offset"]), int(table["sh_size"])
        if size // _SYMBOL.itemsize > self._limits.symbols:
            raise BinaryInvalid(
                f"it has {size // _SYMBOL.itemsize:,} symbols, more than {self._limits.symbols:,}"
            )
        every = np.frombuffer(self._content[offset : offset + size], _SYMBOL)
        functions = every[(every["info"] & 0xF == _FUNCTION) & (every["size"] > 0) & (every["value"] > 0)]
        starts, first = np.unique(functions["value"], return_index=True)
        self._starts = starts.tolist()
        self._functions = functions[first]
        self._locals = every[(every["info"] >> 4 == _LOCAL) & (every["value"] > 0) & (every["name"] > 0)]
        # Not beyond the file: a damaged table of names may be said to be at any 64 bits.
        first_name, last_name = int(names["sh_offset"]), int(names["sh_offset"]) + int(names["sh_size"])
        self._names = min(first_name, len(self._content)), min(last_name, len(self._content))

    def _string(self, offset: int) -> bytes:
        at = self._names[0] + offset
        end = min(at + _LONGEST_NAME, self._names[1])
        zero = self._content.find(b"\0", at, end)
        return self._content[at : end if zero < 0 else zero]

    def numbered_names(self, names: Mapping[int, bytes]) -> dict[int, bytes]:
        """Return the names of functions, by their addresses, as BOLT has them.

        Names of local symbols aren't unique, so BOLT numbers those of one name in the order of addresses.
        Raises BinaryInvalid if they are too long.
        """
        wanted, seen, found, left = {*names.values()}, Counter[bytes](), dict(names), _MOST_NAMES
        for row in np.argsort(self._locals["value"], kind="stable").tolist():
            name, address = self._string(int(self._locals["name"][row])), int(self._locals["value"][row])
            left -= len(name)
            if left < 0:
                raise BinaryInvalid(f"names of its local symbols have over {_MOST_NAMES:,} bytes")
            if name in wanted:
                seen[name] += 1
                if names.get(address) == name:
                    found[address] = b"%s/%d" % (name, seen[name])
        return found

    def _relative(self, tables: list[tuple[int, int]]) -> tuple[UInt64s, Int64s]:
        """Return the places where the loader writes pointers into the program, sorted, and these pointers.

        Tables of relocations are given by their places in the file and their sizes.
        """
        count = sum(size for _, size in tables) // _RELOCATION.itemsize
        if count > self._limits.relocations:
            raise BinaryInvalid(f"it has {count:,} relocations, more than {self._limits.relocations:,}")
        contents = [self._content[offset : offset + size] for offset, size in tables]
        every = np.frombuffer(b"".join(contents), _RELOCATION)
        relative = every[every["type"] == _RELATIVE]
        order = np.argsort(relative["place"], kind="stable")
        return relative["place"][order], relative["pointer"][order]

    def address(self, offset: int) -> int | None:
        """Return the address of a byte of the file, before the program is moved; None if it isn't loaded."""
        for start, address, size in self.segments:
            if start <= offset < start + size:
                return address + offset - start
        return None

    def number(self, address: int, size: int) -> int | None:
        """Return the number in `size` bytes at an address; None if the file has no such bytes."""
        for start, first, length in self.segments:
            if first <= address and address + size <= first + length:
                found = self._content[start + address - first : start + address - first + size]
                return int.from_bytes(found, "little", signed=True) if len(found) == size else None
        return None

    def pointer(self, address: int) -> int | None:
        """Return the address that a pointer has before the program is moved; None if there is none."""
        row = bisect_left(self._relocated, address)
        if row < len(self._relocated) and int(self._relocated[row]) == address:
            return int(self._pointers[row])
        return self.number(address, 8)

    def function(self, address: int) -> Function | None:
        """Return the function with this address in it; None if there is none, or it is too large."""
        row = bisect_right(self._starts, address) - 1
        if row < 0:
            return None
        start, size = self._starts[row], int(self._functions["size"][row])
        if address >= start + size or size > self._limits.function_bytes:
            return None
        for offset, first, length in self.segments:
            if first <= start and start + size <= first + length:
                at = offset + start - first
                return Function(
                    self._string(int(self._functions["name"][row])),
                    start,
                    memoryview(self._content)[at : at + size],
                )
        return None


class _Reader(io.RawIOBase):
    """A file for pyelftools, of which it may read so often."""

    def __init__(self, content: bytes | mmap.mmap) -> None:
        self._content = content
        self._at = self._reads = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, len(self._content))[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        self._reads += 1
        if self._reads > _MOST_READS:
            raise BinaryInvalid(f"its tables take more than {_MOST_READS:,} reads")
        end = len(self._content) if size < 0 else self._at + size
        found: bytes = self._content[self._at : end]
        self._at += len(found)
        return found


def _build_id(section: NoteSection) -> str:
    """Return the build id in a section of notes; "" if none is one."""
    if section["sh_size"] > _MOST_NOTE_BYTES:
        return ""
    for note in islice(section.iter_notes(), _MOST_NOTES):
        build_id = note["n_desc"]
        if note["n_type"] == "NT_GNU_BUILD_ID" and isinstance(build_id, str):
            return build_id if _BUILD_ID.fullmatch(build_id) else ""
    return ""
