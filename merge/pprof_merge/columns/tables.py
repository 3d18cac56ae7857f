"""Tables that store each distinct row of numbers once, and number the rows as they come, from 0.

Rows may differ in length. They are found by a hash table with open addressing, seeded in each process, so
that nobody can construct rows whose hashes collide; rows are compared, so that none is taken for another.
"""

from __future__ import annotations

import os
from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i32, i64

from pprof_merge.columns.vectors import copy_into, copy_into32, mixed, room, room32, zeros, zeros32

_ROW_BITS: Final[i64] = 0xFFFFFFFF
_TAG_BITS: Final[i64] = 0x7FFFFFFF
# Rows are looked up in blocks: what each row of a block needs is touched before it is needed, so that the
# processor waits for the memory of many rows at once.
_BLOCK: Final[i64] = 256
_MIN_ROWS: Final[i64] = 32


class Slots:
    """The part of a table that doesn't depend on how wide numbers are.

    Row i has the words from ends[i] to ends[i + 1]. A slot has 1 + the number of a row in its lower 32 bits,
    and above them 31 bits of the row's hash, whose other bits say where to look for the slot; a free slot
    is 0. At most half of the slots are taken.
    """

    def __init__(self) -> None:
        self.seed: i64 = int.from_bytes(os.urandom(8), "little") >> 1
        self.other_seed: i64 = mixed(self.seed, 1)
        self.slots, self.hashes, self.ends = zeros(2 * _MIN_ROWS), zeros(_MIN_ROWS), zeros(_MIN_ROWS + 1)
        self.count: i64 = 0
        # The rows that have a slot; those that `append` added get theirs before the next look-up.
        self.n_hashed: i64 = 0

    def make_slots(self, rows: i64) -> None:
        """Make room for this many more rows."""
        rows += self.count
        if rows > len(self.hashes):
            self.hashes = room(self.hashes, rows)
            self.ends = room(self.ends, i64(len(self.hashes)) + 1)
        size: i64 = i64(len(self.slots))
        if 2 * rows > size:
            while size < 2 * rows:
                size *= 2
            self.slots = zeros(0)  # gives its memory back before the larger one is made
            self.slots = zeros(size)
            self.fill_slots(0)

    def fill_slots(self, first: i64) -> None:
        """Give a slot to each hashed row from `first` on."""
        slots, hashes = self.slots, self.hashes
        last: i64 = i64(len(slots)) - 1
        for row in range(first, self.n_hashed):
            hash_: i64 = hashes[row]
            slot: i64 = hash_ >> 32 & last
            while slots[slot] != 0:
                slot = slot + 1 & last
            slots[slot] = (hash_ & _TAG_BITS) << 32 | row + 1

    def add(self, slot: i64, tag: i64, hash_: i64) -> i64:
        """Give a free slot to a new row; return its number."""
        row: i64 = self.count
        self.count = self.n_hashed = row + 1
        self.slots[slot] = tag | row + 1
        self.hashes[row] = hash_
        return row

    def look_ahead(self, ahead: vec[i64], first: i64, some: i64, numbers: vec[i64]) -> None:
        """Touch the slots of a block of rows, and set `numbers` to where the words of their rows may be.

        `ahead` has the hashes of the block's rows.
        """
        slots, ends, count = self.slots, self.ends, self.count
        last: i64 = i64(len(slots)) - 1
        for k in range(some):
            numbers[first + k] = slots[ahead[k] >> 32 & last] & _ROW_BITS
        for k in range(some):
            numbers[first + k] = ends[min(numbers[first + k], count)]


@final
class Table(Slots):
    """Rows of numbers of 64 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.words: vec[i64] = zeros(1)

    def make_room(self, rows: i64, words: i64) -> None:
        """Make room for `rows` more rows with `words` words in all."""
        self.make_slots(rows)
        if self.n_hashed < self.count:
            self.hash_appended()
        self.words = room(self.words, self.ends[self.count] + words)

    def hash_appended(self) -> None:
        """Give a slot to the rows that `append` added."""
        first: i64 = self.n_hashed
        ends = self.ends
        for row in range(first, self.count):
            self.hashes[row] = self.hash_of(self.words, ends[row], ends[row + 1] - ends[row])
        self.n_hashed = self.count
        self.fill_slots(first)

    def hash_of(self, source: vec[i64], begin: i64, size: i64) -> i64:
        """Return the hash of source[begin : begin + size]."""
        # Two hashes at a time, of which neither waits for the other.
        hash_: i64 = self.seed
        other: i64 = self.other_seed
        i: i64 = begin
        last: i64 = begin + size - 1
        while i < last:
            hash_ = mixed(hash_, source[i])
            other = mixed(other, source[i + 1])
            i += 2
        if i == last:
            hash_ = mixed(hash_, source[i])
        return mixed(mixed(hash_, size), other)

    def number_of(self, source: vec[i64], begin: i64, size: i64, hash_: i64) -> i64:
        """Return the number of the row with this hash, which is added if it is new. There must be room."""
        slots, words, ends = self.slots, self.words, self.ends
        last: i64 = i64(len(slots)) - 1
        slot: i64 = hash_ >> 32 & last
        tag: i64 = (hash_ & _TAG_BITS) << 32
        entry: i64 = slots[slot]
        row: i64
        start: i64
        same: i64
        while entry != 0:
            if entry >> 32 << 32 == tag:
                row = (entry & _ROW_BITS) - 1
                start = ends[row]
                if ends[row + 1] - start == size:
                    same = 0
                    while same < size and words[start + same] == source[begin + same]:
                        same += 1
                    if same == size:
                        return row
            slot = slot + 1 & last
            entry = slots[slot]
        row = self.add(slot, tag, hash_)
        start = ends[row]
        for same in range(size):
            words[start + same] = source[begin + same]
        ends[row + 1] = start + size
        return row

    def numbers_of(self, source: vec[i64], bounds: vec[i64], n: i64, numbers: vec[i64], to: i64 = 0) -> None:
        """Set n `numbers`, from `to` on, to those of the rows source[bounds[i] : bounds[i + 1]]."""
        ahead, words, ends, slots = zeros(min(n, _BLOCK) + 1), self.words, self.ends, self.slots
        most: i64 = i64(len(words)) - 1
        last: i64 = i64(len(slots)) - 1
        for first in range(i64(0), n, _BLOCK):
            some: i64 = min(_BLOCK, n - first)
            for k in range(first, first + some):
                ahead[k - first] = self.hash_of(source, bounds[k], bounds[k + 1] - bounds[k])
            self.look_ahead(ahead, to + first, some, numbers)
            seen: i64 = 0
            for k in range(to + first, to + first + some):
                seen ^= words[min(numbers[k], most)]
            ahead[some] = seen
            for k in range(first, first + some):
                # Most rows are known, and in the first slot that they may be in.
                hash_: i64 = ahead[k - first]
                entry: i64 = slots[hash_ >> 32 & last]
                begin: i64 = bounds[k]
                size: i64 = bounds[k + 1] - begin
                if entry != 0 and entry >> 32 == hash_ & _TAG_BITS:
                    start: i64 = ends[(entry & _ROW_BITS) - 1]
                    if ends[entry & _ROW_BITS] - start == size:
                        same: i64 = 0
                        while same < size and words[start + same] == source[begin + same]:
                            same += 1
                        if same == size:
                            numbers[to + k] = (entry & _ROW_BITS) - 1
                            continue
                numbers[to + k] = self.number_of(source, begin, size, hash_)

    def known(self, source: vec[i64], begin: i64, size: i64) -> i64:
        """Return the number of one row, which is added if it is new. There must be room."""
        return self.number_of(source, begin, size, self.hash_of(source, begin, size))

    def append(self, words: bytes, sizes: bytes) -> None:
        """Give rows the next numbers; none of them is in the table. Both are int64, `sizes` one a row."""
        n: i64 = i64(len(sizes)) >> 3
        self.hashes = room(self.hashes, self.count + n)
        self.ends = room(self.ends, i64(len(self.hashes)) + 1)
        begin: i64 = self.ends[self.count]
        self.words = room(self.words, begin + (i64(len(words)) >> 3))
        copy_into(self.words, begin, words)
        append_ends(self.ends, self.count, sizes)
        self.count += n


@final
class IntTable(Slots):
    """Rows of numbers of 32 bits that aren't negative. The hash takes four of them at a step."""

    def __init__(self) -> None:
        super().__init__()
        self.words: vec[i32] = zeros32(1)

    def make_room(self, rows: i64, words: i64) -> None:
        """Make room for `rows` more rows with `words` words in all."""
        self.make_slots(rows)
        if self.n_hashed < self.count:
            self.hash_appended()
        self.words = room32(self.words, self.ends[self.count] + words)

    def hash_appended(self) -> None:
        """Give a slot to the rows that `append` added."""
        first: i64 = self.n_hashed
        ends = self.ends
        for row in range(first, self.count):
            self.hashes[row] = self.hash_of(self.words, ends[row], ends[row + 1] - ends[row])
        self.n_hashed = self.count
        self.fill_slots(first)

    def hash_of(self, source: vec[i32], begin: i64, size: i64) -> i64:
        """Return the hash of source[begin : begin + size]."""
        # Two hashes at a time, of which neither waits for the other.
        hash_: i64 = self.seed
        other: i64 = self.other_seed
        i: i64 = begin
        last: i64 = begin + size - 1
        while i < last - 2:
            hash_ = mixed(hash_, i64(source[i]) << 32 | i64(source[i + 1]))
            other = mixed(other, i64(source[i + 2]) << 32 | i64(source[i + 3]))
            i += 4
        while i <= last:
            hash_ = mixed(hash_, i64(source[i]))
            i += 1
        return mixed(mixed(hash_, size), other)

    def number_of(self, source: vec[i32], begin: i64, size: i64, hash_: i64) -> i64:
        """Return the number of the row with this hash, which is added if it is new. There must be room."""
        slots, words, ends = self.slots, self.words, self.ends
        last: i64 = i64(len(slots)) - 1
        slot: i64 = hash_ >> 32 & last
        tag: i64 = (hash_ & _TAG_BITS) << 32
        entry: i64 = slots[slot]
        row: i64
        start: i64
        same: i64
        while entry != 0:
            if entry >> 32 << 32 == tag:
                row = (entry & _ROW_BITS) - 1
                start = ends[row]
                if ends[row + 1] - start == size:
                    same = 0
                    while same < size and words[start + same] == source[begin + same]:
                        same += 1
                    if same == size:
                        return row
            slot = slot + 1 & last
            entry = slots[slot]
        row = self.add(slot, tag, hash_)
        start = ends[row]
        for same in range(size):
            words[start + same] = source[begin + same]
        ends[row + 1] = start + size
        return row

    def numbers_of(self, source: vec[i32], bounds: vec[i64], n: i64, numbers: vec[i64], to: i64 = 0) -> None:
        """Set n `numbers`, from `to` on, to those of the rows source[bounds[i] : bounds[i + 1]]."""
        ahead, words, ends, slots = zeros(min(n, _BLOCK) + 1), self.words, self.ends, self.slots
        most: i64 = i64(len(words)) - 1
        last: i64 = i64(len(slots)) - 1
        for first in range(i64(0), n, _BLOCK):
            some: i64 = min(_BLOCK, n - first)
            for k in range(first, first + some):
                ahead[k - first] = self.hash_of(source, bounds[k], bounds[k + 1] - bounds[k])
            self.look_ahead(ahead, to + first, some, numbers)
            seen: i64 = 0
            for k in range(to + first, to + first + some):
                seen ^= i64(words[min(numbers[k], most)])
            ahead[some] = seen
            for k in range(first, first + some):
                # Most rows are known, and in the first slot that they may be in.
                hash_: i64 = ahead[k - first]
                entry: i64 = slots[hash_ >> 32 & last]
                begin: i64 = bounds[k]
                size: i64 = bounds[k + 1] - begin
                if entry != 0 and entry >> 32 == hash_ & _TAG_BITS:
                    start: i64 = ends[(entry & _ROW_BITS) - 1]
                    if ends[entry & _ROW_BITS] - start == size:
                        same: i64 = 0
                        while same < size and words[start + same] == source[begin + same]:
                            same += 1
                        if same == size:
                            numbers[to + k] = (entry & _ROW_BITS) - 1
                            continue
                numbers[to + k] = self.number_of(source, begin, size, hash_)

    def append(self, words: bytes, sizes: bytes) -> None:
        """Give rows the next numbers; none is in the table. Words are int32, `sizes` int64, one a row."""
        n: i64 = i64(len(sizes)) >> 3
        self.hashes = room(self.hashes, self.count + n)
        self.ends = room(self.ends, i64(len(self.hashes)) + 1)
        begin: i64 = self.ends[self.count]
        self.words = room32(self.words, begin + (i64(len(words)) >> 2))
        copy_into32(self.words, begin, words)
        append_ends(self.ends, self.count, sizes)
        self.count += n


def append_ends(ends: vec[i64], count: i64, sizes: bytes) -> None:
    """Set the ends of the rows from `count` on, given their sizes."""
    copy_into(ends, count + 1, sizes)
    for row in range(count, count + (i64(len(sizes)) >> 3)):
        ends[row + 1] += ends[row]
