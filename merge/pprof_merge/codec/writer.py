"""Writing: columns → the records of a profile, byte for byte as google/pprof's `proto.go` writes them.

Ids are row numbers counted from 1. Fields that are 0 are left out, and repeated numbers are packed from three
on.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import extend, vec
from mypy_extensions import i32, i64, u8

from pprof_merge.codec.wire import LENGTH, field_size, put, put_field, size_of
from pprof_merge.columns.vectors import zeros
from pprof_merge.profile.columns import ProfileColumns

_LONGEST_UNPACKED: Final[i64] = 2
# More than the tag and length of a record, and more than a field takes.
_HEAD: Final[i64] = 24
_FIELD: Final[i64] = 11


@final
class StringTable:
    """The string table to write: strings in the order in which they are first used.

    `index` has, for each row of a profile's strings, 1 + its index in the table, or 0 if nothing used it yet.
    """

    def __init__(self, strings: list[bytes]) -> None:
        self.strings: list[bytes] = strings
        self.written: list[bytes] = []
        self.index_of: dict[bytes, int] = {}
        self.index: vec[i64] = zeros(i64(len(strings)))

    def add(self, string: bytes) -> i64:
        """Use a string; return its index in the table."""
        index = self.index_of.get(string)
        if index is None:
            index = len(self.written)
            self.index_of[string] = index
            self.written.append(string)
        return index

    def use(self, row: i64) -> None:
        """Use a string of the profile. Rows may have equal strings."""
        if self.index[row] == 0:
            self.index[row] = 1 + self.add(self.strings[row])

    def use_all(self, profile: ProfileColumns) -> None:
        """Use the strings of all labels, then of all mappings and functions, in the order of their fields."""
        index, labels, mappings, functions = self.index, profile.labels, profile.mappings, profile.functions
        text: i64
        for i in range(profile.n_labels):
            if index[labels[4 * i]] == 0:
                self.use(labels[4 * i])
            text = labels[4 * i + 1]
            if text < 0:
                text = labels[4 * i + 3]
            if index[text] == 0:
                self.use(text)
        for i in range(profile.n_mappings):
            self.use(mappings[10 * i + 4])
            self.use(mappings[10 * i + 5])
        for i in range(profile.n_functions):
            for k in range(5 * i + 1, 5 * i + 4):
                if index[functions[k]] == 0:
                    self.use(functions[k])


@final
class Writer:
    """The records of a profile, one after another, in pieces that are at least so long."""

    def __init__(self, piece_bytes: i64) -> None:
        self.piece_bytes: i64 = piece_bytes
        self.pieces: list[bytes] = []
        self.chars: vec[u8] = vec[u8]([u8(0)] * 4096)
        self.at: i64 = 0

    def written(self) -> list[bytes]:
        """Return what was written, in pieces."""
        self.finish_piece()
        return self.pieces

    def finish_piece(self) -> None:
        """Begin another piece."""
        self.pieces.append(bytes(memoryview(self.chars)[: self.at]))
        self.at = 0

    def reserve(self, size: i64) -> vec[u8]:
        """Return the column with room for `size` bytes from `at` on."""
        if self.at >= self.piece_bytes:
            self.finish_piece()
        have: i64 = i64(len(self.chars))
        if self.at + size > have:
            more: i64 = self.at + size - have + (have >> 2)
            self.chars = extend(self.chars, vec[u8]([u8(0)] * more))
        return self.chars

    def message(self, number: i64, cells: vec[i64], n: i64) -> None:
        """Write a message with the fields 1 to n, which are numbers."""
        chars = self.reserve(_HEAD + _FIELD * n)
        size: i64 = fields_size(cells, 0, n)
        at: i64 = put(chars, put(chars, self.at, number << 3 | LENGTH), size)
        self.at = put_fields(chars, at, cells, 0, n)

    def value_type(self, number: i64, type_: i64, unit: i64) -> None:
        """Write a value type, given the indexes of its strings."""
        cells = zeros(2)
        cells[0], cells[1] = type_, unit
        self.message(number, cells, 2)

    def samples(self, profile: ProfileColumns, table: StringTable) -> None:
        """Write the samples and their labels."""
        values, frames, labels, n_types = profile.values, profile.frames, profile.labels, profile.n_types
        frame_ends, label_ends = profile.frame_ends, profile.label_ends
        index, cells = table.index, zeros(4)
        begin: i64 = 0
        first_label: i64 = 0
        for row in range(profile.n_samples):
            end: i64 = frame_ends[row + 1]
            last_label: i64 = label_ends[row + 1]
            ids: i64 = 0
            for i in range(begin, end):
                ids += size_of(i64(frames[i]) + 1)
            numbers: i64 = 0
            for i in range(row * n_types, (row + 1) * n_types):
                numbers += size_of(values[i])
            size: i64 = repeated_size(end - begin, ids) + repeated_size(n_types, numbers)
            for i in range(first_label, last_label):
                take_label(cells, labels, i, index)
                label: i64 = fields_size(cells, 0, 4)
                size += 1 + size_of(label) + label
            chars = self.reserve(_HEAD + size)
            at: i64 = put(chars, put(chars, self.at, 2 << 3 | LENGTH), size)
            at = put_frames(chars, at, frames, begin, end, ids)
            at = put_repeated(chars, at, 2, values, row * n_types, (row + 1) * n_types, numbers)
            for i in range(first_label, last_label):
                take_label(cells, labels, i, index)
                at = put(chars, put(chars, at, 3 << 3 | LENGTH), fields_size(cells, 0, 4))
                at = put_fields(chars, at, cells, 0, 4)
            self.at = at
            begin, first_label = end, last_label

    def mappings(self, profile: ProfileColumns, table: StringTable) -> None:
        """Write the mappings."""
        mappings, index, cells = profile.mappings, table.index, zeros(10)
        for row in range(profile.n_mappings):
            first: i64 = 10 * row
            cells[0] = row + 1
            for k in range(1, 4):
                cells[k] = mappings[first + k]
            cells[4] = index[mappings[first + 4]] - 1
            cells[5] = index[mappings[first + 5]] - 1
            for k in range(6, 10):
                cells[k] = i64(1) if mappings[first + k] != 0 else i64(0)
            self.message(3, cells, 10)

    def locations(self, profile: ProfileColumns) -> None:
        """Write the locations and their lines."""
        locations, lines, cells, line = profile.locations, profile.lines, zeros(3), zeros(3)
        begin: i64 = 0
        for row in range(profile.n_locations):
            end: i64 = locations[5 * row + 3]
            folded: i64 = i64(1) if locations[5 * row + 4] != 0 else i64(0)
            cells[0] = row + 1
            cells[1] = locations[5 * row + 1] + 1
            cells[2] = locations[5 * row + 2]
            size: i64 = fields_size(cells, 0, 3) + field_size(folded)
            for i in range(begin, end):
                take_line(line, lines, i)
                of_line: i64 = fields_size(line, 0, 3)
                size += 1 + size_of(of_line) + of_line
            chars = self.reserve(_HEAD + size)
            at: i64 = put(chars, put(chars, self.at, 4 << 3 | LENGTH), size)
            at = put_fields(chars, at, cells, 0, 3)
            for i in range(begin, end):
                take_line(line, lines, i)
                at = put(chars, put(chars, at, 4 << 3 | LENGTH), fields_size(line, 0, 3))
                at = put_fields(chars, at, line, 0, 3)
            self.at = put_field(chars, at, 5, folded)
            begin = end

    def functions(self, profile: ProfileColumns, table: StringTable) -> None:
        """Write the functions."""
        functions, index, cells = profile.functions, table.index, zeros(5)
        for row in range(profile.n_functions):
            cells[0] = row + 1
            for k in range(1, 4):
                cells[k] = index[functions[5 * row + k]] - 1
            cells[4] = functions[5 * row + 4]
            self.message(5, cells, 5)

    def strings(self, table: StringTable) -> None:
        """Write the string table."""
        for string in table.written:
            size: i64 = i64(len(string))
            chars = self.reserve(_HEAD + size)
            at: i64 = put(chars, put(chars, self.at, 6 << 3 | LENGTH), size)
            for i in range(size):
                chars[at + i] = u8(string[i])
            self.at = at + size

    def number(self, number: i64, value: i64) -> None:
        """Write a number with its tag; 0 is left out."""
        self.at = put_field(self.reserve(2 * _FIELD), self.at, number, value)

    def always(self, number: i64, value: i64) -> None:
        """Write a number with its tag, also if it is 0."""
        chars = self.reserve(2 * _FIELD)
        self.at = put(chars, put(chars, self.at, number << 3), value)

    def repeated(self, number: i64, cells: vec[i64], n: i64) -> None:
        """Write n repeated numbers."""
        size: i64 = 0
        for i in range(n):
            size += size_of(cells[i])
        chars = self.reserve(_HEAD + n + size)
        self.at = put_repeated(chars, self.at, number, cells, 0, n, size)


def take_label(cells: vec[i64], labels: vec[i64], row: i64, index: vec[i64]) -> None:
    """Set cells to the fields of a label: it has either a text, or a number and its unit."""
    cells[0] = index[labels[4 * row]] - 1
    text: i64 = labels[4 * row + 1]
    cells[1] = index[text] - 1 if text >= 0 else i64(0)
    cells[2] = labels[4 * row + 2]
    cells[3] = index[labels[4 * row + 3]] - 1 if text < 0 else i64(0)


def take_line(cells: vec[i64], lines: vec[i64], row: i64) -> None:
    """Set cells to the fields of a line."""
    cells[0] = lines[3 * row] + 1
    cells[1] = lines[3 * row + 1]
    cells[2] = lines[3 * row + 2]


def repeated_size(n: i64, size: i64) -> i64:
    """Return the bytes of n repeated numbers whose varints have `size` bytes, tags included."""
    return 1 + size_of(size) + size if n > _LONGEST_UNPACKED else n + size


def put_repeated(
    chars: vec[u8], at: i64, number: i64, cells: vec[i64], begin: i64, end: i64, size: i64
) -> i64:
    """Write repeated numbers whose varints have `size` bytes; return the position after them."""
    is_packed = end - begin > _LONGEST_UNPACKED
    if is_packed:
        at = put(chars, put(chars, at, number << 3 | LENGTH), size)
    for i in range(begin, end):
        if not is_packed:
            at = put(chars, at, number << 3)
        at = put(chars, at, cells[i])
    return at


def put_frames(chars: vec[u8], at: i64, frames: vec[i32], begin: i64, end: i64, size: i64) -> i64:
    """Write the ids of a sample's locations, whose varints have `size` bytes; return the position after."""
    is_packed = end - begin > _LONGEST_UNPACKED
    if is_packed:
        at = put(chars, put(chars, at, 1 << 3 | LENGTH), size)
    for i in range(begin, end):
        if not is_packed:
            at = put(chars, at, 1 << 3)
        at = put(chars, at, i64(frames[i]) + 1)
    return at


def fields_size(cells: vec[i64], first: i64, n: i64) -> i64:
    """Return the bytes of the fields 1 to n, whose values are in cells."""
    size: i64 = 0
    for k in range(first, first + n):
        size += field_size(cells[k])
    return size


def put_fields(chars: vec[u8], at: i64, cells: vec[i64], first: i64, n: i64) -> i64:
    """Write the fields 1 to n, whose values are in cells; return the position after them."""
    for k in range(n):
        at = put_field(chars, at, k + 1, cells[first + k])
    return at
