"""Writing: columns → the records of a profile, byte for byte as google/pprof's `proto.go` writes them.

Fields that are 0 are left out, and repeated numbers are packed from three on.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i64_le
from librt.vecs import extend, vec
from mypy_extensions import i64, u8

from pprof_merge.codec.wire import LENGTH, field_size, put, put_field, size_of

_LONGEST_UNPACKED: Final[i64] = 2
# More than the tag and length of a record, and more than a field takes.
_HEAD: Final[i64] = 24
_FIELD: Final[i64] = 11


@final
class Writer:
    """The records of a profile, one after another.

    Columns come as bytes of int64. In rows of messages each cell is a field, in the order of the schema, as
    it is to be written: ids count from 1, and texts are indexes of the string table.
    """

    def __init__(self) -> None:
        self.chars: vec[u8] = vec[u8]([u8(0)] * 4096)
        self.at: i64 = 0

    def written(self) -> bytes:
        """Return what was written."""
        return bytes(memoryview(self.chars)[: self.at])

    def reserve(self, size: i64) -> vec[u8]:
        """Return the column with room for so many bytes after what was written."""
        have: i64 = i64(len(self.chars))
        if self.at + size > have:
            more: i64 = self.at + size - have + (have >> 2)
            self.chars = extend(self.chars, vec[u8]([u8(0)] * more))
        return self.chars

    def messages(self, number: i64, cells: bytes, width: i64) -> None:
        """Write messages (n, width) whose fields are all numbers."""
        at: i64
        for row in range(i64(len(cells)) // 8 // width):
            first: i64 = row * width
            chars = self.reserve(_HEAD + _FIELD * width)
            size: i64 = fields_size(cells, first, width)
            at = put(chars, put(chars, self.at, number << 3 | LENGTH), size)
            self.at = put_fields(chars, at, cells, first, width)

    def samples(
        self, values: bytes, n_types: i64, frames: bytes, frame_ends: bytes, labels: bytes, label_ends: bytes
    ) -> None:
        """Write samples: values (n, n_types), ids of locations, and labels (n_labels, 4), both ragged."""
        n: i64 = i64(len(frame_ends)) // 8 - 1
        begin: i64 = read_i64_le(frame_ends, 0)
        first_label: i64 = read_i64_le(label_ends, 0)
        for row in range(n):
            end: i64 = read_i64_le(frame_ends, 8 * row + 8)
            last_label: i64 = read_i64_le(label_ends, 8 * row + 8)
            ids: i64 = sizes_of(frames, begin, end)
            numbers: i64 = sizes_of(values, row * n_types, (row + 1) * n_types)
            size: i64 = repeated_size(end - begin, ids) + repeated_size(n_types, numbers)
            for i in range(first_label, last_label):
                label: i64 = fields_size(labels, 4 * i, 4)
                size += 1 + size_of(label) + label
            chars = self.reserve(_HEAD + size)
            at: i64 = put(chars, put(chars, self.at, 2 << 3 | LENGTH), size)
            at = put_repeated(chars, at, 1, frames, begin, end, ids)
            at = put_repeated(chars, at, 2, values, row * n_types, (row + 1) * n_types, numbers)
            for i in range(first_label, last_label):
                label = fields_size(labels, 4 * i, 4)
                at = put(chars, put(chars, at, 3 << 3 | LENGTH), label)
                at = put_fields(chars, at, labels, 4 * i, 4)
            self.at = at
            begin, first_label = end, last_label

    def locations(self, cells: bytes, lines: bytes, line_ends: bytes) -> None:
        """Write locations: id, mapping, address and folded (n, 4), and their lines (n_lines, 3), ragged."""
        begin: i64 = read_i64_le(line_ends, 0)
        for row in range(i64(len(cells)) // 32):
            end: i64 = read_i64_le(line_ends, 8 * row + 8)
            folded: i64 = read_i64_le(cells, 32 * row + 24)
            size: i64 = fields_size(cells, 4 * row, 3) + field_size(folded)
            for i in range(begin, end):
                line: i64 = fields_size(lines, 3 * i, 3)
                size += 1 + size_of(line) + line
            chars = self.reserve(_HEAD + size)
            at: i64 = put(chars, put(chars, self.at, 4 << 3 | LENGTH), size)
            at = put_fields(chars, at, cells, 4 * row, 3)
            for i in range(begin, end):
                at = put(chars, put(chars, at, 4 << 3 | LENGTH), fields_size(lines, 3 * i, 3))
                at = put_fields(chars, at, lines, 3 * i, 3)
            self.at = put_field(chars, at, 5, folded)
            begin = end

    def record(self, number: i64, content: bytes) -> None:
        """Write a field with a length, such as a string."""
        size: i64 = i64(len(content))
        chars = self.reserve(_HEAD + size)
        at: i64 = put(chars, put(chars, self.at, number << 3 | LENGTH), size)
        for i in range(size):
            chars[at + i] = u8(content[i])
        self.at = at + size

    def strings(self, strings: list[bytes]) -> None:
        """Write the string table."""
        for string in strings:
            self.record(6, string)

    def number(self, number: i64, value: i64) -> None:
        """Write a number with its tag; 0 is left out."""
        self.at = put_field(self.reserve(2 * _FIELD), self.at, number, value)

    def always(self, number: i64, value: i64) -> None:
        """Write a number with its tag, also if it is 0."""
        chars = self.reserve(2 * _FIELD)
        self.at = put(chars, put(chars, self.at, number << 3), value)

    def repeated(self, number: i64, cells: bytes) -> None:
        """Write repeated numbers."""
        n: i64 = i64(len(cells)) // 8
        size: i64 = sizes_of(cells, 0, n)
        chars = self.reserve(_HEAD + n + size)
        self.at = put_repeated(chars, self.at, number, cells, 0, n, size)


def sizes_of(cells: bytes, begin: i64, end: i64) -> i64:
    """Return the bytes of the varints of cells."""
    size: i64 = 0
    for i in range(begin, end):
        size += size_of(read_i64_le(cells, 8 * i))
    return size


def repeated_size(n: i64, size: i64) -> i64:
    """Return the bytes of n repeated numbers whose varints have so many bytes, tags included."""
    return 1 + size_of(size) + size if n > _LONGEST_UNPACKED else n + size


def put_repeated(chars: vec[u8], at: i64, number: i64, cells: bytes, begin: i64, end: i64, size: i64) -> i64:
    """Write repeated numbers whose varints have `size` bytes; return the position after them."""
    is_packed = end - begin > _LONGEST_UNPACKED
    if is_packed:
        at = put(chars, put(chars, at, number << 3 | LENGTH), size)
    for i in range(begin, end):
        if not is_packed:
            at = put(chars, at, number << 3)
        at = put(chars, at, read_i64_le(cells, 8 * i))
    return at


def fields_size(cells: bytes, first: i64, n: i64) -> i64:
    """Return the bytes of the fields 1 to n, whose values are in cells."""
    size: i64 = 0
    for k in range(first, first + n):
        size += field_size(read_i64_le(cells, 8 * k))
    return size


def put_fields(chars: vec[u8], at: i64, cells: bytes, first: i64, n: i64) -> i64:
    """Write the fields 1 to n, whose values are in cells; return the position after them."""
    for k in range(n):
        at = put_field(chars, at, k + 1, read_i64_le(cells, 8 * (first + k)))
    return at
