"""Programs: the functions of an ELF file, their code and addresses, read by pyelftools."""

from __future__ import annotations

import io
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

from pprof_merge.arrays import Int64s, UInt64s
from pprof_merge.errors import BinaryInvalid

# An entry of a table of relocations (SHT_RELA), and the type of those that write a pointer into the program.
_RELOCATION = np.dtype([("place", "<u8"), ("type", "<u8"), ("pointer", "<i8")])
_RELATIVE = 8  # R_X86_64_RELATIVE, of symbol 0


@dataclass(frozen=True, slots=True)
class BinaryLimits:
    """Limits of a binary and its sampled functions.

    `size`, `function_bytes` and `code_bytes` are bytes: of the file, of the code of one sampled function, and
    of all of them. `table_entries` are those of the jump tables of one function.
    `symbolizer_seconds` and `symbolizer_bytes` bound llvm-symbolizer, and `flow_seconds` the solver for one
    function.
    """

    size: int = 2 << 30
    sections: int = 10_000
    symbols: int = 5_000_000
    relocations: int = 20_000_000
    function_bytes: int = 1 << 20
    table_entries: int = 1 << 20
    code_bytes: int = 32 << 20
    symbolizer_seconds: float = 600.0
    symbolizer_bytes: int = 8 << 30
    flow_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a program: its name, first address, and code."""

    name: bytes
    start: int
    code: bytes


class Binary:
    """An ELF program for x86-64. Raises BinaryInvalid, also if it is hostile."""

    def __init__(self, content: bytes, limits: BinaryLimits) -> None:
        self._content, self._limits = content, limits
        if len(content) > limits.size:
            raise BinaryInvalid(f"it has more than {limits.size:,} bytes")
        if not content.startswith(b"\x7fELF"):
            raise BinaryInvalid("it is not an ELF file; give the program that was profiled")
        try:
            self._read(ELFFile(io.BytesIO(content)))
        except BinaryInvalid:
            raise
        except Exception as error:  # pyelftools lets out whatever a damaged file makes it do
            raise BinaryInvalid(f"it is a damaged ELF file ({type(error).__name__}: {error})") from error

    def _read(self, elf: ELFFile) -> None:
        if elf["e_machine"] != "EM_X86_64":
            raise BinaryInvalid(f"it is for {elf['e_machine']}; only x86-64 programs can be read")
        if max(elf.num_sections(), elf.num_segments()) > self._limits.sections:
            raise BinaryInvalid(f"it has more than {self._limits.sections:,} sections or segments")
        self.segments = [
            (int(segment["p_offset"]), int(segment["p_vaddr"]), int(segment["p_filesz"]))
            for segment in elf.iter_segments("PT_LOAD")
        ]
        self.build_id = ""
        symbols: dict[int, tuple[int, bytes]] = {}
        relocations = list[tuple[int, int]]()
        for section in elf.iter_sections():
            if isinstance(section, NoteSection) and section.name == ".note.gnu.build-id":
                self.build_id = next(section.iter_notes())["n_desc"]
            elif isinstance(section, SymbolTableSection) and section["sh_type"] == "SHT_SYMTAB":
                symbols |= self._symbols(section)
            elif section["sh_type"] == "SHT_RELA":
                relocations.append((int(section["sh_offset"]), int(section["sh_size"])))
        if not symbols:
            raise BinaryInvalid("it has no symbol table; give the program before it was stripped")
        self._relocated, self._pointers = self._relative(relocations)
        self._functions = [(start, *symbols[start]) for start in sorted(symbols)]
        self._starts = [start for start, _, _ in self._functions]

    def _symbols(self, table: SymbolTableSection) -> dict[int, tuple[int, bytes]]:
        """Return the size and the name of the function at each address."""
        count = table.num_symbols()
        if count > self._limits.symbols:
            raise BinaryInvalid(f"it has {count:,} symbols, more than {self._limits.symbols:,}")
        found: dict[int, tuple[int, bytes]] = {}
        for symbol in table.iter_symbols():
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_size"] and symbol["st_value"]:
                found.setdefault(symbol["st_value"], (symbol["st_size"], symbol.name.encode()))
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
        """Return the number of so many bytes at an address; None if the file has no such bytes."""
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
        start, size, name = self._functions[row]
        if address >= start + size or size > self._limits.function_bytes:
            return None
        for offset, first, length in self.segments:
            if first <= start and start + size <= first + length:
                return Function(
                    name, start, self._content[offset + start - first : offset + start - first + size]
                )
        return None
