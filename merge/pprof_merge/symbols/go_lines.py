"""Functions, files and lines of a Go program that was stripped, from the table that its runtime reads.

Go's linker writes them into `.gopclntab` for stack traces, whatever flags it is given, in the form of
`runtime/symtab.go` and `debug/gosym` (Go 1.18 or later). What changes along the code of a function, its file,
line and inlined call, is each a table of steps, pairs of varints, which are read as arrays. The calls that
are inlined are beside it, in the form of Go 1.20 or later, at a place that the runtime's `moduledata` has.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pprof_merge.arrays import Bools, Bytes, Int64s
from pprof_merge.columns.ragged import offsets_of, take_rows
from pprof_merge.errors import BinaryInvalid
from pprof_merge.limits import BinaryLimits
from pprof_merge.symbols.elf import Elf, Texts
from pprof_merge.symbols.table import Places

_SECTIONS = ".gopclntab", ".data.rel.ro.gopclntab"
_GO_1_18, _GO_1_20 = 0xFFFFFFF0, 0xFFFFFFF1
# Magic, the sizes of an instruction and of a pointer, the number of functions; where names, the files of each
# unit, files, steps and functions begin.
_HEAD = struct.Struct("<I2x2BQ16x5Q")
# Of runtime.moduledata, in words: the first and last address of functions, where code begins, and between
# which words the place of inlined calls is, which every version of Go has moved.
_FIRST, _LAST, _TEXT, _WORDS, _INLINED_IN = 20, 21, 22, 64, slice(32, 64)
# Of a function, in words of 32 bits: its name, tables of steps, how many it has besides, and its unit. Then
# come the other tables, and what doesn't change along the code.
_NAME, _FILES, _LINES, _N_TABLES, _UNIT = 1, 5, 6, 7, 8
_INLINED_TABLE, _INLINED_CALLS = 2, 3
# An inlined call: the function's name, and where in the code its call is.
_CALL = np.dtype({"names": ["name", "place"], "formats": ["<i4", "<i4"], "offsets": [4, 8], "itemsize": 16})
_NONE = (1 << 32) - 1
# How many bytes of steps are read at once, and how many steps then: arrays of these take some 100 MB.
_STEP_BYTES, _BATCH = 1 << 20, 1 << 20


class _Steps(NamedTuple):
    """Tables of steps, (n_tables,) by their place, with the first step's first, ragged by `offsets`.

    `value` is (n_steps,), and `begin` is where in the code it begins, in instructions from its function's.
    """

    table: Int64s
    offsets: Int64s
    begin: Int64s
    value: Int64s


def read_go_lines(elf: Elf, limits: BinaryLimits) -> tuple[Places, str] | None:
    """Return the places of a Go program, and what they lack; None if it isn't one. Raises BinaryInvalid.

    What left out its code may have left out where that begins, too: then its symbols have to do, if there are
    any, as in what Parca's agent uploads.
    """
    section = next((elf.sections[name] for name in _SECTIONS if name in elf.sections), None)
    if section is None:
        return None
    try:
        lines = _GoLines(elf, section.address, np.frombuffer(section.content, np.uint8), limits)
        return lines.places(), lines.missing
    except _NoDescription:
        if ".symtab" in elf.sections:
            return None
        raise BinaryInvalid(
            "it is a Go program without symbols, of which something else was left out, too: give the program"
            " as it was linked"
        ) from None
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise BinaryInvalid(f"its table of Go's functions is damaged: {error}") from error


class _NoDescription(Exception):
    """The file has no moduledata, which says where Go's code begins."""


class _GoLines:
    """The table of a program. Raises BinaryInvalid, and IndexError, ValueError and more if it is damaged."""

    def __init__(self, elf: Elf, address: int, content: Bytes, limits: BinaryLimits) -> None:
        self._elf, self._limits = elf, limits
        magic, self._instruction, pointer, count, *begins = _HEAD.unpack_from(bytes(content[: _HEAD.size]))
        if magic not in {_GO_1_18, _GO_1_20} or pointer != 8:
            raise BinaryInvalid(
                "its table of Go's functions has a form that isn't known; Go 1.18 to 1.27 can be read, or "
                "give the program before it was stripped"
            )
        if count > limits.symbols:
            raise BinaryInvalid(f"it has {count:,} functions, more than {limits.symbols:,}")
        names, units, files, steps, functions = begins
        if not names <= units <= files <= steps <= functions <= len(content):
            raise ValueError("its parts aren't in order")
        self._names, self._files = Texts(content[names:units]), Texts(content[files:steps])
        self._units = np.frombuffer(content[units : units + (files - units) // 4 * 4], "<u4")
        self._steps = content[steps:functions]
        self._words = np.frombuffer(
            content[functions : functions + (len(content) - functions) // 4 * 4], "<u4"
        )
        index = self._words[: 2 * count + 1].astype(np.int64)
        if len(index) <= 2 * count or (np.diff(index[::2]) <= 0).any() or not count:
            raise ValueError("its functions aren't in order")
        self._entries, self._ends = index[:-1:2], index[2::2]
        self._at = index[1::2] // 4
        self._n_own = 11 if magic == _GO_1_20 else 10
        self._module = self._find_module(address)
        # From the program's lowest address to where Go's code begins.
        self._moved = int(self._module[_TEXT]) - elf.base
        if not 0 <= self._moved + int(self._ends[-1]) < 1 << 32:
            raise ValueError("its code is outside of the program")
        self.missing = ""

    def _find_module(self, address: int) -> Int64s:
        """Return the words of the runtime's moduledata, which begin with the address of this table."""
        places, pointers = self._elf.relocations()
        found = places[pointers == address].tolist()
        for section in self._elf.sections.values():
            if section.address and not section.is_compressed:
                words = np.frombuffer(section.content[: len(section.content) // 8 * 8], "<u8")
                found += [
                    section.address + 8 * row for row in np.flatnonzero(words == address)[:_WORDS].tolist()
                ]
        for place in found[:_WORDS]:
            words = self._elf.words(place, _WORDS).astype(np.int64)
            if (
                len(words) > _TEXT
                and words[_TEXT]
                and (
                    words[_FIRST] - words[_TEXT] == self._entries[0]
                    and words[_LAST] - words[_TEXT] == self._ends[-1]
                )
            ):
                return words
        raise _NoDescription

    def places(self) -> Places:
        """Return the functions by address."""
        name, files, lines, n_tables, unit = (
            self._words[self._at + row].astype(np.int64) for row in (_NAME, _FILES, _LINES, _N_TABLES, _UNIT)
        )
        own = self._words[self._at + self._n_own - 1] >> 24  # how many it has of what doesn't change
        inlined = self._optional(self._at + self._n_own + _INLINED_TABLE, n_tables > _INLINED_TABLE, 0)
        calls = self._optional(
            self._at + self._n_own + n_tables + _INLINED_CALLS, own > _INLINED_CALLS, _NONE
        )
        tables = np.stack((files, lines, inlined))
        steps = self._decoded(np.unique(tables))
        parts = [
            self._batch(steps, first, tables[:, first:last]) for first, last in self._batches(steps, tables)
        ]
        starts, function, file, line, call = map(np.concatenate, zip(*parts, strict=True))
        has_file = file >= 0
        file_at = np.full(len(starts), _NONE, np.int64)
        file_at[has_file] = self._units[unit[function[has_file]] + file[has_file]]
        name_at, into = self._with_calls(starts, function, call, calls, name)
        return self._numbered(starts, name_at, file_at, line, into)

    def _optional(self, at: Int64s, is_there: Bools, otherwise: int) -> Int64s:
        """Return the words at these places, and another number where there is none."""
        is_there &= at < len(self._words)
        words = np.full(len(at), otherwise, np.int64)
        words[is_there] = self._words[at[is_there]]
        return words

    def _decoded(self, tables: Int64s) -> _Steps:
        """Return the steps of the tables at these places, ascending; 0 is none."""
        tables = tables[(tables > 0) & (tables < len(self._steps))]
        ends = np.append(tables[1:], len(self._steps))
        parts, first = list[tuple[Int64s, Int64s, Int64s]](), 0
        while first < len(tables):
            last = int(np.searchsorted(ends, tables[first] + _STEP_BYTES, side="right"))
            last = max(last, first + 1)
            begin = int(tables[first])
            content = self._steps[begin : min(int(ends[last - 1]), begin + 2 * _STEP_BYTES)]
            parts.append(_steps_of(content, tables[first:last] - begin))
            first = last
        if not parts:
            raise ValueError("it has no lines")
        counts, begins, values = map(np.concatenate, zip(*parts, strict=True))
        return _Steps(tables, offsets_of(counts), begins, values)

    def _batches(self, steps: _Steps, tables: Int64s) -> Iterator[tuple[int, int]]:
        """Yield batches of functions, each as its first and the one behind its last. Raises BinaryInvalid."""
        counts = np.append(np.diff(steps.offsets), 0)
        rows = np.searchsorted(steps.table, tables)
        # A step is of one byte or more; functions may share a table.
        each = np.minimum(counts[rows], self._ends - self._entries)
        total = offsets_of(each.sum(axis=0) + 1)
        if total[-1] > 3 * self._limits.ranges:
            raise BinaryInvalid(f"its functions have more than {self._limits.ranges:,} ranges of addresses")
        first = 0
        while first < len(self._entries):
            last = max(int(np.searchsorted(total, total[first] + _BATCH, side="right")) - 1, first + 1)
            yield first, last
            first = last

    def _batch(self, steps: _Steps, first: int, tables: Int64s) -> tuple[Int64s, ...]:
        """Return ranges of addresses, their functions, and what these have there, of some functions.

        `tables` is (3, n_functions): of files, lines and inlined calls.
        """
        count = tables.shape[1]
        entries, ends = self._entries[first : first + count], self._ends[first : first + count]
        known = list[tuple[Int64s, Int64s, Int64s]]()
        for places in tables:
            rows = np.searchsorted(steps.table, places)
            found = np.flatnonzero(np.append(steps.table, 0)[rows] == places)
            flat, offsets = take_rows(steps.offsets, rows[found])
            function = np.repeat(found, np.diff(offsets))
            address = entries[function] + self._instruction * steps.begin[flat]
            is_within = address < ends[function]
            known.append((address[is_within], function[is_within], steps.value[flat][is_within]))
        starts = np.unique(np.concatenate([entries, *(address for address, _, _ in known)]))
        function = np.searchsorted(entries, starts, side="right") - 1
        columns = []
        for address, of, value in known:
            rows = np.searchsorted(address, starts, side="right") - 1
            is_known = np.append(of, -1)[rows] == function
            columns.append(np.where(is_known, np.append(value, -1)[rows], -1))
        return starts, function + first, *columns

    def _with_calls(
        self, starts: Int64s, function: Int64s, call: Int64s, calls: Int64s, name: Int64s
    ) -> tuple[Int64s, Int64s]:
        """Return the name at each range, and the range that it is inlined into; -1 if it isn't."""
        name_at, into = name[function], np.full(len(starts), -1, np.int64)
        rows = np.flatnonzero((call >= 0) & (calls[function] != _NONE))
        if not len(rows):
            return name_at, into
        found = None
        if self._n_own > 10:
            at = calls[function[rows]] + _CALL.itemsize * call[rows]
            size = (self._ends - self._entries)[function[rows]]
            found = next(
                filter(None, (self._calls(int(each), at, size) for each in self._module[_INLINED_IN])), None
            )
        if found is None:
            self.missing = (
                "calls that are inlined aren't known, only the functions that they are inlined into"
            )
            return name_at, into
        inner, place = found
        outer = np.searchsorted(starts, self._entries[function[rows]] + place, side="right") - 1
        # Go numbers a call after the one that it is inlined into.
        is_sound = (function[outer] == function[rows]) & (call[outer] < call[rows])
        name_at[rows[is_sound]], into[rows[is_sound]] = inner[is_sound], outer[is_sound]
        return name_at, into

    def _calls(self, address: int, at: Int64s, size: Int64s) -> tuple[Int64s, Int64s] | None:
        """Return names and places of the calls that are `at` bytes from an address; None if these are none.

        A call has the place of a name, and a place in its function, whose code has `size` bytes.
        """
        distinct, rows = np.unique(at, return_inverse=True)
        for section in self._elf.sections.values():
            begin = address - section.address
            if (
                section.address
                and begin >= 0
                and begin + int(distinct[-1]) + _CALL.itemsize <= len(section.content)
            ):
                content = np.frombuffer(section.content, np.uint8)
                read = (
                    content[(begin + distinct)[:, np.newaxis] + np.arange(_CALL.itemsize)].copy().view(_CALL)
                )
                name, place = (read[field].reshape(-1).astype(np.int64) for field in ("name", "place"))
                if (place >= 0).all() and (place[rows] < size).all() and self._names.are_texts(name):
                    return name[rows], place[rows]
        return None

    def _numbered(self, starts: Int64s, name: Int64s, file: Int64s, line: Int64s, into: Int64s) -> Places:
        """Return the places, given by where their names and files are."""
        pairs, function = np.unique(name << 32 | file, return_inverse=True)
        names, files = self._names.at(pairs >> 32), self._files.at(pairs & _NONE)
        end = [self._ends[-1]]  # behind it, nothing is known
        return Places(
            np.concatenate((starts, end)) + self._moved,
            np.append(function.reshape(-1), -1),
            np.append(np.maximum(line, 0), 0),
            np.append(into, -1),
            [*zip(names, files, strict=True)],
        )


def _steps_of(content: Bytes, tables: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return how many steps each table has, and where these begin and their values.

    `tables` is where in the content each table begins, ascending. Each is pairs of a difference of values, in
    zigzag, and of places; a difference of 0 that isn't the first ends it.
    """
    last = np.flatnonzero(content < 0x80)  # the last byte of each number
    begins = np.concatenate((np.zeros(1, np.int64), last + 1))[: len(last)]
    numbers = np.zeros(len(last), np.int64)
    padded = np.concatenate((content, np.zeros(5, np.uint8)))
    for byte in range(5):
        is_longer = begins + byte <= last
        numbers[is_longer] |= (padded[begins[is_longer] + byte].astype(np.int64) & 0x7F) << (7 * byte)
    first = np.searchsorted(begins, tables)
    table = np.searchsorted(first, np.arange(len(numbers)), side="right") - 1
    behind = np.arange(len(numbers)) - first[table]
    is_value = behind % 2 == 0
    is_end = (numbers == 0) & is_value & (behind > 0)
    # Up to the first end of each table, or where the next one begins.
    n_ends = offsets_of(is_end)
    is_step = is_value & (n_ends[:-1] == n_ends[first[table]]) & ~is_end
    rows = np.flatnonzero(is_step)
    rows = rows[rows + 1 < len(numbers)]
    of = table[rows]
    counts = np.bincount(of, minlength=len(tables))
    changes, lengths = numbers[rows], numbers[rows + 1]
    changes = np.where(changes & 1, ~(changes >> 1), changes >> 1)
    offsets = offsets_of(counts)
    values, ends = np.cumsum(changes), np.cumsum(lengths)
    # Each table counts from -1 and from 0.
    earlier_values, earlier_ends = (np.append(0, sums)[offsets[:-1]][of] for sums in (values, ends))
    return counts, ends - lengths - earlier_ends, values - earlier_values - 1
