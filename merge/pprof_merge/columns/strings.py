"""Strings that are numbered without an object for each: rows of words in a table, eight bytes a word."""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i64_le
from librt.vecs import vec
from mypy_extensions import i64

from pprof_merge.columns.tables import Table
from pprof_merge.columns.vectors import bytes_of, room, zeros

_WORD: Final[i64] = 8
# Not (1 << 8 * n) - 1: mypyc makes a C int of a shifted literal, which has 32 bits.
_SEVEN_BYTES: Final[i64] = 0xFFFFFFFFFFFFFF


@final
class Strings:
    """Distinct strings and their numbers, from 0 in the order in which they came; 0 is the empty string.

    A row of `table` has the size of a string, then its bytes; the last word is filled up with zeros.
    """

    def __init__(self) -> None:
        self.table: Table = Table()
        self.words: vec[i64] = zeros(0)
        self.bounds: vec[i64] = zeros(1)
        self.add([b""])

    def __len__(self) -> int:
        return int(self.table.count)

    def numbers_of(self, text: bytes, spans: vec[i64], n: i64) -> vec[i64]:
        """Return the number of each of n strings; new ones are added.

        String i is text[spans[2 * i] : spans[2 * i + 1]].
        """
        size: i64 = 0
        for i in range(n):
            size += 1 + (spans[2 * i + 1] - spans[2 * i] + _WORD - 1 >> 3)
        self.words = words = room(self.words, size)
        self.bounds = bounds = room(self.bounds, n + 1)
        last: i64 = i64(len(text)) - _WORD
        size = 0
        for i in range(n):
            at: i64 = spans[2 * i]
            end: i64 = spans[2 * i + 1]
            words[size] = end - at
            size += 1
            while at < end:
                word: i64 = read_i64_le(text, at) if at <= last else last_word(text, at, end)
                if end - at < _WORD:
                    word &= _SEVEN_BYTES >> 8 * (_WORD - 1 - end + at)
                words[size] = word
                size += 1
                at += _WORD
            bounds[i + 1] = size
        numbers = zeros(n)
        self.table.make_room(n, size)
        self.table.numbers_of(words, bounds, n, numbers)
        return numbers

    def add(self, strings: list[bytes]) -> vec[i64]:
        """Return the number of each string; new ones are added."""
        spans = spans_of(strings)
        return self.numbers_of(b"".join(strings), spans, i64(len(strings)))

    def since(self, number: i64) -> list[bytes]:
        """Return the strings whose numbers are `number` or higher, in order."""
        table = self.table
        ends, words = table.ends, table.words
        every = bytes_of(words, ends[table.count])
        strings: list[bytes] = []
        for row in range(number, table.count):
            begin: i64 = _WORD * (ends[row] + 1)
            strings.append(every[begin : begin + words[ends[row]]])
        return strings


def last_word(text: bytes, at: i64, end: i64) -> i64:
    """Return the bytes from `at` to `end` - 1 as a word; there are eight at most, and fewer are read."""
    word: i64 = 0
    for k in range(min(end - at, _WORD)):
        word |= i64(text[at + k]) << 8 * k
    return word


def spans_of(strings: list[bytes]) -> vec[i64]:
    """Return where each string begins and ends if they are joined."""
    spans = zeros(2 * i64(len(strings)))
    at: i64 = 0
    for row in range(i64(len(strings))):
        spans[2 * row] = at
        at += i64(len(strings[row]))
        spans[2 * row + 1] = at
    return spans
