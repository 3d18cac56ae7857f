"""Symbol tables: which functions and lines a program has at an address, in a file that is mapped into memory.

A table is flat arrays. Addresses are cut into ranges: each has a place, of a function and a line, and a place
that is inlined into another names that. So any number of addresses is looked up at once, and what `symbolic`
and Go's linker know has one form. `build_table` makes them.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

import numpy as np

from pprof_merge.arrays import Int64s, UInt64s
from pprof_merge.columns.ragged import offsets_of
from pprof_merge.errors import BinaryInvalid
from pprof_merge.symbols.elf import Segment

_MAGIC = b"pprof-symbols-1\n"
_HEAD = struct.Struct("<16sQ")
_MOST_FACTS = 1 << 20
# The arrays of a table, in their order in the file, each a multiple of 8 bytes long.
_ARRAYS = {
    "starts": "<u4", "function": "<i4", "line": "<u4", "into": "<i4",
    "name": "<i4", "file": "<i4", "ends": "<i8", "text": "u1",
}  # fmt: skip
_DEEPEST = 250  # calls that are inlined into each other; a location of a profile may have as many lines


class Frames(NamedTuple):
    """The frames of addresses, ragged by `offsets` (n + 1), the innermost call first.

    `function` is rows of the table's functions, and `line` is 0 where it isn't known.
    """

    function: Int64s
    line: Int64s
    offsets: Int64s


@dataclass(frozen=True, slots=True)
class Places:
    """The functions of a program, and at which addresses they are: in ranges up to the next start.

    `starts` is (n_ranges,), ascending, relative to the program's lowest address. `function`, `line` and
    `into` are (n_places,), of which the last n_ranges are those of the ranges: rows of `functions`, or -1
    where nothing is known, lines, or 0, and the places that these are inlined into, or -1. Functions are
    names and files.
    """

    starts: Int64s
    function: Int64s
    line: Int64s
    into: Int64s
    functions: Sequence[tuple[bytes, bytes]]


def over(first: Places, second: Places) -> Places:
    """Return the places of one source, and those of another before and behind all ranges of the first.

    The first's last range is where nothing is known.
    """
    begin, end = int(first.starts[0]), int(first.starts[-1])
    n_second, n_ranges = len(second.function), len(second.starts)
    # The range of the second within which the first ends goes on behind it.
    behind = max(int(np.searchsorted(second.starts, end, side="right")) - 1, 0)
    starts = np.maximum(second.starts, end)
    before = np.flatnonzero(second.starts < begin)
    rest = np.arange(behind, n_ranges) if n_ranges else before
    of_second = n_second - n_ranges + np.concatenate((before, rest))
    of_first = n_second + len(first.function) - len(first.starts) + np.arange(len(first.starts) - 1)
    n_before = len(before)
    ranges = np.concatenate((of_second[:n_before], of_first, of_second[n_before:]))
    # The places of ranges come last, in their order, and once more as those that others are inlined into.
    order = np.concatenate((np.arange(n_second + len(first.function)), ranges))
    into = np.where(first.into < 0, -1, first.into + n_second)
    functions = np.where(first.function < 0, -1, first.function + len(second.functions))
    return Places(
        np.concatenate((second.starts[before], first.starts[:-1], starts[rest])),
        np.concatenate((second.function, functions))[order],
        np.concatenate((second.line, first.line))[order],
        np.concatenate((second.into, into))[order],
        [*second.functions, *first.functions],
    )


@dataclass(frozen=True, slots=True)
class Facts:
    """A program: its build id, lowest address, code, the sizes of its pages, and what its table lacks."""

    build_id: str
    base: int
    code: list[Segment]
    pages: Sequence[int]
    missing: str = ""


def write_arrays(facts: Facts, places: Places, to: BinaryIO) -> None:
    """Write a table, without places that nothing refers to and ranges that say the same as the one before."""
    n_ranges = len(places.starts)
    columns = places.function, places.line, places.into
    of_ranges = np.stack([column[len(column) - n_ranges :] for column in columns])
    is_kept = np.zeros(len(places.function), np.bool_)
    is_kept[places.into[places.into >= 0]] = True
    is_kept[len(is_kept) - n_ranges :] = True
    is_kept[len(is_kept) - n_ranges + 1 :] = (of_ranges[:, 1:] != of_ranges[:, :-1]).any(axis=0)
    # A range that is left out has the place of the last one that isn't.
    moved = np.cumsum(is_kept) - 1
    into = np.where(places.into < 0, -1, moved[places.into])
    texts = {b"": 0}
    pairs = [[texts.setdefault(text, len(texts)) for text in pair] for pair in places.functions]
    arrays = {
        "starts": places.starts[is_kept[len(is_kept) - n_ranges :]],
        "function": places.function[is_kept],
        "line": places.line[is_kept],
        "into": into[is_kept],
        "name": np.array([name for name, _ in pairs], np.int64),
        "file": np.array([file for _, file in pairs], np.int64),
        "ends": offsets_of(np.fromiter(map(len, texts), np.int64, len(texts))),
        "text": np.frombuffer(b"".join(texts), np.uint8),
    }
    counts = [len(array) for array in arrays.values()]
    told = [facts.build_id, facts.base, facts.code, [*facts.pages], facts.missing, counts]
    head = json.dumps(told).encode()
    head += b" " * (-len(head) % 8)
    to.write(_HEAD.pack(_MAGIC, len(head)) + head)
    for name, array in arrays.items():
        content = array.astype(_ARRAYS[name]).tobytes()
        to.write(content + bytes(-len(content) % 8))


class SymbolTable:
    """A table in a file, as `write_table` writes it. Raises OSError and BinaryInvalid.

    `missing` says what names the table lacks, and is "" if it has all.
    """

    def __init__(self, facts: Facts, arrays: dict[str, np.ndarray]) -> None:
        self.build_id, self.missing = facts.build_id, facts.missing
        self._facts = facts
        self._starts = arrays["starts"]
        self._function, self._line, self._into = arrays["function"], arrays["line"], arrays["into"]
        self._names, self._files = arrays["name"], arrays["file"]
        self._ends, self._text = arrays["ends"], arrays["text"].data

    @classmethod
    def open(cls, path: Path) -> Self:
        """Return the table in a file, which must stay as it is."""
        try:
            with path.open("rb") as file:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            magic, length = _HEAD.unpack_from(content)
            if magic != _MAGIC:
                raise BinaryInvalid(f"{path.name} is no table of symbols")
            at = _HEAD.size
            build_id, base, code, pages, missing, counts = json.loads(
                content[at : at + min(length, _MOST_FACTS)]
            )
            facts = Facts(build_id, base, [Segment(*each) for each in code], pages, missing)
            at, arrays = at + length, {}
            for (name, type_), count in zip(_ARRAYS.items(), counts, strict=True):
                arrays[name] = array = np.frombuffer(content, type_, count, at)
                at += array.nbytes + -array.nbytes % 8
        except (ValueError, TypeError, struct.error) as error:
            raise BinaryInvalid(f"{path.name} is no table of symbols: {error}") from error
        return cls(facts, arrays)

    def addresses(self, addresses: UInt64s, start: int, limit: int, offset: int) -> Int64s:
        """Return addresses in a mapping as those of the table, (n,); -1 where they are of nothing it knows.

        A mapping has its first and last address, and its offset in the file. Where the file of a segment
        is known, its offsets are those of the mapping. Where it isn't, the mapping must be all of it. An
        address outside of its mapping, or in one that says nothing, is the program's own: OpenTelemetry's
        and Parca's profilers have taken off where it was loaded.
        """
        within = addresses - np.uint64(start)
        is_within = (addresses >= start) & ((addresses < limit) | (limit <= start))
        is_within &= bool(start or limit or offset)
        of_mapping = self._of_places(within + np.uint64(offset))
        found = np.where(is_within, of_mapping, self._of_program(addresses))
        moves = {move for segment in self._facts.code for move in self._moves(segment, start, limit, offset)}
        if len(moves) == 1:
            here = within.astype(np.int64) + moves.pop()
            for segment in self._facts.code:
                first = segment.address - self._facts.base
                is_here = is_within & (first <= here) & (here < first + segment.size)
                found = np.where(is_here & (found < 0), here, found)
        return found

    def _of_program(self, addresses: UInt64s) -> Int64s:
        """Return addresses of the program as those of the table; -1 if they are no code."""
        found = np.full(len(addresses), -1, np.int64)
        for _, address, size in self._facts.code:
            is_here = addresses - np.uint64(address) < np.uint64(size)
            found[is_here] = addresses[is_here].astype(np.int64) - self._facts.base
        return found

    def _of_places(self, places: UInt64s) -> Int64s:
        """Return places in the program's file as addresses of the table; -1 if they are no code."""
        found = np.full(len(places), -1, np.int64)
        for offset, address, size in self._facts.code:
            if offset >= 0:
                within = places - np.uint64(offset)
                is_here = within < np.uint64(size)
                found[is_here] = within[is_here].astype(np.int64) + (address - self._facts.base)
        return found

    def _moves(self, segment: Segment, start: int, limit: int, offset: int) -> Sequence[int]:
        """Return what is added to addresses in a mapping that is all of a segment, by size of a page."""
        if segment.offset >= 0:
            return ()
        return [
            segment.address // page * page - self._facts.base
            for page in self._facts.pages
            if start % page == offset % page == 0
            and -(-limit // page) - start // page
            == -(-(segment.address + segment.size) // page) - segment.address // page
        ]

    def look_up(self, addresses: Int64s) -> Frames:
        """Return the frames at addresses of the table, (n,). Raises BinaryInvalid if it is damaged."""
        if not len(self._starts) or not len(addresses):
            return Frames(
                np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(len(addresses) + 1, np.int64)
            )
        ranges = np.searchsorted(self._starts, addresses, side="right") - 1
        rows = np.flatnonzero((addresses >= 0) & (ranges >= 0))
        at = len(self._function) - len(self._starts) + ranges[rows]
        levels = [(rows[:0], at[:0])]
        try:
            while len(rows):
                function = self._function[at]
                known = function >= 0
                rows, at = rows[known], at[known]
                levels.append((rows, at))
                into = self._into[at].astype(np.int64)
                is_inlined = into >= 0
                rows, at = rows[is_inlined], into[is_inlined]
                if len(levels) > _DEEPEST:
                    raise BinaryInvalid(f"the table {self.build_id} has calls inlined without end")
            of_address, places = map(np.concatenate, zip(*levels, strict=True))
            every = places[np.argsort(of_address, kind="stable")]
            counts = np.bincount(of_address, minlength=len(addresses))
            return Frames(
                self._function[every].astype(np.int64), self._line[every].astype(np.int64), offsets_of(counts)
            )
        except (IndexError, ValueError) as error:
            raise BinaryInvalid(f"the table {self.build_id} is damaged: {error}") from error

    def functions(self, rows: Int64s) -> list[tuple[bytes, bytes]]:
        """Return the names and files of functions in these rows. Raises BinaryInvalid if it is damaged."""
        try:
            texts = [
                [
                    bytes(self._text[begin:end])
                    for begin, end in zip(self._ends[of].tolist(), self._ends[of + 1].tolist(), strict=True)
                ]
                for of in (self._names[rows], self._files[rows])
            ]
        except IndexError as error:
            raise BinaryInvalid(f"the table {self.build_id} is damaged: {error}") from error
        return [*zip(*texts, strict=True)]
