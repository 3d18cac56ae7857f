"""Find what the machine code of a Go program is: the functions and lines at its calls, inlined ones too.

A profiler sends the addresses of calls. DWARF's table of lines says on which line an address is, and its
entries say which code was inlined, and by the call on which line. Which addresses are calls, the code says.
"""

from __future__ import annotations

import re
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from elftools.dwarf.compileunit import CompileUnit
    from elftools.dwarf.die import DIE
    from elftools.dwarf.dwarfinfo import DWARFInfo
    from elftools.elf.elffile import ELFFile

# x86-64: CALL of a near function, by a register or through memory, and SYSCALL. What only looks like one is
# never asked for.
_X86_CALLS = re.compile(
    rb"(?=(\xe8[\s\S]{4}|\xff[\x10-\x13\x16\x17\xd0-\xd7]|\xff[\x14\x50-\x53\x55-\x57][\s\S]|\xff\x54[\s\S]{2}"
    rb"|\xff[\x15\x90-\x93\x95-\x97][\s\S]{4}|\xff\x94[\s\S]{5}|\x0f\x05))"
)
_NEAR = 0xE8
# AArch64: BL, BLR and SVC, as the bits that tell them and their values.
_ARM_CALLS = ((0xFC000000, 0x94000000), (0xFFFFFC1F, 0xD63F0000), (0xFFE0001F, 0xD4000001))
# An address that stands for a call is the last byte of its instruction: profilers take one from where the
# call returns to.
_LINKED_BY_REGISTER = "AArch64"


class Line(NamedTuple):
    """A line in the code of a function; the line is 0 if only the profiler knows it."""

    function: str
    line: int


class Place(NamedTuple):
    """An address, and the lines of its code: the innermost of the calls that were inlined there comes first.

    If the first line isn't 0, it is a call. If it is, the place is all code from there up to the next such.
    """

    address: int
    lines: tuple[Line, ...]


class LineTable(NamedTuple):
    """The table of lines of a unit: from an address on, by address, code is of a file and on a line."""

    addresses: array[int]
    files: array[int]
    lines: array[int]

    @classmethod
    def of(cls, rows: Iterator[tuple[int, int, int]]) -> Self:
        """Return the table of rows of an address, a file and a line; the last of an address counts."""
        table = cls(array("Q"), array("L"), array("L"))
        for address, file, line in sorted(rows, key=itemgetter(0)):
            table.addresses.append(address)
            table.files.append(file)
            table.lines.append(line)
        return table

    def file_of(self, address: int) -> int | None:
        """Return the number of the file at an address; None if it is before the first."""
        row = bisect_right(self.addresses, address) - 1
        return self.files[row] if row >= 0 else None

    def line_of(self, address: int) -> int:
        """Return the line at an address; 0 if it has none."""
        row = bisect_right(self.addresses, address) - 1
        return self.lines[row] if row >= 0 else 0


@dataclass(slots=True)
class _Scope:
    """A function, or a call that was inlined: where its code is, and on which line of the outer one it is.

    `entry` is the offset of the function's entry.
    """

    entry: int
    name: str
    ranges: list[tuple[int, int]]
    outer: _Scope | None = None
    call_line: int = 0
    inner: list[_Scope] = field(default_factory=list)

    def lines(self, line: int) -> tuple[Line, ...]:
        """Return the lines of code that is in no inner one, on this line."""
        found, scope = [Line(self.name, line)], self
        while scope.outer is not None:
            found.append(Line(scope.outer.name, scope.call_line))
            scope = scope.outer
        return tuple(found)

    def every(self) -> Iterator[_Scope]:
        """Yield the scope and those in it, an outer one before its inner ones."""
        yield self
        for each in self.inner:
            yield from each.every()


def calls_of(elf: ELFFile, entries: set[int]) -> list[int]:
    """Return the last address of each instruction in .text that may be a call, in order.

    `entries` are the addresses of functions, which direct calls go to.
    """
    section = elf.get_section_by_name(".text")
    if section is None:
        return []
    code, first = section.data(), int(section["sh_addr"])
    machine = elf.get_machine_arch()
    if machine == _LINKED_BY_REGISTER:
        words = array("I", code[: len(code) & ~3])
        return [
            first + 4 * at + 3
            for at, word in enumerate(words)
            if any(word & mask == value for mask, value in _ARM_CALLS)
        ]
    return [*_x86_calls(code, first, entries)] if machine == "x64" else []


def _x86_calls(code: bytes, first: int, entries: set[int]) -> Iterator[int]:
    ends = set[int]()
    for found in _X86_CALLS.finditer(code):
        instruction = found[1]
        end = first + found.start() + len(instruction)
        if instruction[0] == _NEAR and end + struct.unpack_from("<i", instruction, 1)[0] not in entries:
            continue
        ends.add(end - 1)
    yield from sorted(ends)


class _Stretch(NamedTuple):
    """Code of a function without a gap: whose it is from each of some addresses on, by address."""

    first: int
    last: int
    bounds: list[int]
    owners: list[_Scope | None]
    lines: LineTable

    @classmethod
    def of(cls, scope: _Scope, span: tuple[int, int], lines: LineTable) -> Self:
        """Return the code in a span of a function."""
        every = [*scope.every()]
        bounds = sorted({bound for each in every for bounds in each.ranges for bound in bounds})
        owners: list[_Scope | None] = [None] * len(bounds)
        for each in every:
            for begin, end in each.ranges:
                at, stop = bisect_left(bounds, begin), bisect_left(bounds, end)
                owners[at:stop] = [each] * (stop - at)
        return cls(*span, bounds, owners, lines)


class Code:
    """The code of a program: its functions, with what was inlined into them.

    `files` has the files of functions, by the offset of their entry.
    """

    def __init__(self, dwarf: DWARFInfo, name_of: Callable[[int], str]) -> None:
        """Take the DWARF, and what tells the name of a function by the offset of its entry; "" is none."""
        self.files: dict[int, str] = {}
        self._dwarf = dwarf
        self._name_of = name_of
        self._stretches: list[_Stretch] = []

    @property
    def entries(self) -> set[int]:
        """Return the addresses at which functions begin."""
        return {each.first for each in self._stretches}

    def read(self, unit: CompileUnit, files: Sequence[str], lines: LineTable) -> None:
        """Read a unit, which has these files and this table of lines."""
        for entry in unit.get_top_DIE().iter_children():
            scope = self._scope(entry, unit, None) if entry.tag == "DW_TAG_subprogram" else None
            if scope is None:
                continue
            for span in scope.ranges:
                stretch = _Stretch.of(scope, span, lines)
                self._stretches.append(stretch)
                for bound, owner in zip(stretch.bounds, stretch.owners, strict=True):
                    if owner is not None and owner.entry not in self.files:
                        file = lines.file_of(bound)
                        if file is not None:
                            self.files[owner.entry] = files[file]

    def places(self, calls: Sequence[int]) -> Iterator[Place]:
        """Yield the places of calls, given their addresses in order, and those where code was inlined."""
        for first, last, bounds, owners, lines in self._stretches:
            if any(owner is not None and owner.outer is not None for owner in owners):
                for bound, owner in zip(bounds, owners, strict=True):
                    if owner is not None:
                        yield Place(bound, owner.lines(0))
            for at in range(bisect_left(calls, first), bisect_left(calls, last)):
                owner = owners[bisect_right(bounds, calls[at]) - 1]
                if owner is not None and (line := lines.line_of(calls[at])):
                    yield Place(calls[at], owner.lines(line))

    def _scope(self, entry: DIE, unit: CompileUnit, outer: _Scope | None) -> _Scope | None:
        """Return the scope of an entry and of those in it; None if it has no code."""
        attributes = entry.attributes
        origin = attributes.get("DW_AT_abstract_origin")
        of_function = entry.offset if origin is None else origin.value
        ranges = [*ranges_of(self._dwarf, entry, unit)]
        if not ranges:
            return None
        call_line = attributes.get("DW_AT_call_line")
        scope = _Scope(
            of_function,
            self._name_of(of_function),
            ranges,
            outer,
            0 if call_line is None else call_line.value,
        )
        if entry.has_children:
            self._add_inner(entry, unit, scope)
        return scope

    def _add_inner(self, entry: DIE, unit: CompileUnit, scope: _Scope) -> None:
        for child in entry.iter_children():
            if child.tag == "DW_TAG_inlined_subroutine":
                inner = self._scope(child, unit, scope)
                if inner is not None:
                    scope.inner.append(inner)
            elif child.tag == "DW_TAG_lexical_block":
                self._add_inner(child, unit, scope)


def ranges_of(dwarf: DWARFInfo, entry: DIE, unit: CompileUnit) -> Iterator[tuple[int, int]]:
    """Yield where the code of an entry begins and ends."""
    from elftools.dwarf.descriptions import describe_form_class  # noqa: PLC0415 - an extra
    from elftools.dwarf.ranges import RangeEntry  # noqa: PLC0415

    attributes = entry.attributes
    if "DW_AT_low_pc" in attributes and "DW_AT_high_pc" in attributes:
        low, high = int(attributes["DW_AT_low_pc"].value), attributes["DW_AT_high_pc"]
        is_address = describe_form_class(high.form) == "address"
        yield low, int(high.value) if is_address else low + int(high.value)
    elif "DW_AT_ranges" in attributes:
        lists = dwarf.range_lists()
        top = unit.get_top_DIE().attributes.get("DW_AT_low_pc")
        base = 0 if top is None else int(top.value)
        for each in lists.get_range_list_at_offset(attributes["DW_AT_ranges"].value, unit) if lists else ():
            if not isinstance(each, RangeEntry):
                base = int(each.base_address)
            else:
                start = 0 if each.is_absolute else base
                yield int(start + each.begin_offset), int(start + each.end_offset)
