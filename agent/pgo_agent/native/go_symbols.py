"""Read the symbols of a Go program: its build ids, and where each function begins, from its DWARF.

They become a pprof profile without samples, as a collector's /v1/symbols takes it: each mapping has one of
the build ids, and each function its name, file and first line. Needs the extra `symbols`.
"""

from __future__ import annotations

import gzip
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pprof_proto.profile_pb2 import Profile

from pgo_agent.errors import NotInstalled, NotReadable

if TYPE_CHECKING:
    from elftools.dwarf.compileunit import CompileUnit
    from elftools.dwarf.die import DIE
    from elftools.dwarf.dwarfinfo import DWARFInfo
    from elftools.elf.elffile import ELFFile

_LANGUAGE_GO = 22
# What pyelftools raises for damaged files besides its own errors.
_DAMAGED = (
    ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, RecursionError, TypeError,
    ValueError, zlib.error,
)  # fmt: skip
# The name of the note with Go's own build id: cmd/internal/buildid/note.go.
_GO_NOTE = "Go"


class Function(NamedTuple):
    """A function: its name, its source file and the line on which it begins."""

    name: str
    file: str
    start_line: int


@dataclass(frozen=True, slots=True)
class Symbols:
    """The build ids of a program, GNU's as hex and Go's, as far as it has them, and its functions by name."""

    build_ids: tuple[str, ...]
    functions: tuple[Function, ...]

    @classmethod
    def read(cls, path: Path) -> Symbols:
        """Read a program. Raises NotInstalled, OSError, and NotReadable if it has no symbols of Go."""
        try:
            from elftools.common.exceptions import DWARFError, ELFError  # noqa: PLC0415 - an extra
            from elftools.elf.elffile import ELFFile  # noqa: PLC0415
        except ImportError as error:
            raise NotInstalled("pyelftools", "symbols") from error
        with path.open("rb") as file:
            try:
                return cls._of(ELFFile(file), path)
            except (ELFError, DWARFError, *_DAMAGED) as error:
                raise NotReadable(path, f"not an ELF file with readable DWARF: {error}") from error

    @classmethod
    def _of(cls, elf: ELFFile, path: Path) -> Symbols:
        build_ids = tuple(dict.fromkeys(_build_ids(elf)))
        if not build_ids:
            raise NotReadable(
                path, "it has no build id: build it with Go 1.24 or later, or with -ldflags=-B=gobuildid"
            )
        if not elf.has_dwarf_info(strict=True):
            raise NotReadable(path, "it has no DWARF: build it without -ldflags=-w or -s, and don't strip it")
        functions = _Functions(elf.get_dwarf_info())
        found = sorted(functions.found())
        if not found:
            raise NotReadable(
                path, "its DWARF has no functions of Go with a first line: Go 1.21 or later writes it"
            )
        return cls(build_ids, tuple(found))

    def pprof(self) -> bytes:
        """Return the symbols as a gzipped pprof profile."""
        profile, strings = Profile(string_table=[b""]), {"": 0}

        def string(text: str) -> int:
            if text not in strings:
                strings[text] = len(strings)
                profile.string_table.append(text.encode())
            return strings[text]

        profile.sample_type.add(type=string("samples"), unit=string("count"))
        for id_, build_id in enumerate(self.build_ids, 1):
            profile.mapping.add(id=id_, build_id=string(build_id))
        for id_, (name, file, start_line) in enumerate(self.functions, 1):
            profile.function.add(id=id_, name=string(name), filename=string(file), start_line=start_line)
        return gzip.compress(profile.SerializeToString(), mtime=0)


def _build_ids(elf: ELFFile) -> Iterator[str]:
    from elftools.elf.sections import NoteSection  # noqa: PLC0415

    for section in elf.iter_sections():
        if isinstance(section, NoteSection):
            for note in section.iter_notes():
                if note["n_type"] == "NT_GNU_BUILD_ID":
                    yield note["n_desc"]
                elif note["n_name"] == _GO_NOTE:
                    yield note["n_descdata"].decode()


class _Functions:
    """The functions of a program, read one compilation unit after another.

    DWARF has the file of a function that is never inlined. Of one that is, it has the name and the first
    line, once, and the places where its code is: the table of lines says of which file those are.
    """

    def __init__(self, dwarf: DWARFInfo) -> None:
        self._dwarf = dwarf
        self._functions: dict[str, Function] = {}
        # Name and first line of functions that may be inlined, by the offset of the entry; their files.
        self._inlined: dict[int, tuple[str, int]] = {}
        self._files: dict[int, str] = {}

    def found(self) -> Iterator[Function]:
        """Yield each function of Go that has a name, a file and a first line, once."""
        for unit in self._dwarf.iter_CUs():
            language = unit.get_top_DIE().attributes.get("DW_AT_language")
            if language is not None and language.value == _LANGUAGE_GO:
                self._read(unit)
        for offset, (name, line) in self._inlined.items():
            if offset in self._files:
                self._functions.setdefault(name, Function(name, self._files[offset], line))
        yield from self._functions.values()

    def _read(self, unit: CompileUnit) -> None:
        files, starts = _lines_of(self._dwarf, unit)
        for entry in unit.iter_DIEs():
            if entry.tag not in {"DW_TAG_subprogram", "DW_TAG_inlined_subroutine"}:
                continue
            attributes = entry.attributes
            if "DW_AT_abstract_origin" in attributes:
                origin = attributes["DW_AT_abstract_origin"].value
                if origin not in self._files and (address := self._address(entry, unit)) is not None:
                    at = bisect_right(starts, address, key=itemgetter(0)) - 1
                    if at >= 0:
                        self._files[origin] = files[starts[at][1]]
            elif "DW_AT_decl_line" in attributes and "DW_AT_name" in attributes:
                name, line = attributes["DW_AT_name"].value.decode(), attributes["DW_AT_decl_line"].value
                if "DW_AT_decl_file" in attributes:
                    file = files[attributes["DW_AT_decl_file"].value]
                    self._functions.setdefault(name, Function(name, file, line))
                else:
                    self._inlined[entry.offset] = name, line

    def _address(self, entry: DIE, unit: CompileUnit) -> int | None:
        """Return an address of an entry's code; None if there is none."""
        from elftools.dwarf.ranges import RangeEntry  # noqa: PLC0415

        attributes = entry.attributes
        if "DW_AT_low_pc" in attributes:
            return int(attributes["DW_AT_low_pc"].value)
        if "DW_AT_ranges" not in attributes:
            return None
        lists = self._dwarf.range_lists()
        base, offset = 0, attributes["DW_AT_ranges"].value
        for each in lists.get_range_list_at_offset(offset, unit) if lists else ():
            if not isinstance(each, RangeEntry):
                base = each.base_address
            else:
                return int(each.begin_offset + (0 if each.is_absolute else base))
        return None


def _lines_of(dwarf: DWARFInfo, unit: CompileUnit) -> tuple[list[str], list[tuple[int, int]]]:
    """Return the files of a unit, and from which address on which of them code is, by address."""
    program = dwarf.line_program_for_CU(unit)
    if program is None:
        return [], []
    header = program.header
    directories = [path.decode() for path in header["include_directory"]]
    files = []
    for each in header["file_entry"]:
        name, directory = each.name.decode(), directories[each.dir_index]
        files.append(name if name.startswith("/") else f"{directory}/{name}")
    if header["version"] < 5:  # files and directories are counted from 1
        files.insert(0, "")
    states = (each.state for each in program.get_entries() if each.state is not None)
    return files, sorted((state.address, state.file) for state in states if not state.end_sequence)
