"""Places: which functions and lines the machine code of a build has at its calls, by address.

A profiler may name the line after a call, or only the function into which other calls were inlined. The
address that it sends is right. Go profiles have the lines of addresses, and so do uploaded symbols, of all
calls. Addresses are those in the program's file, whatever it was mapped to.

They are in the tables of start lines, beside the functions. What is said of an address never changes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from pprof_merge import Profile
from pprof_merge.arrays import Bools

# `addition` says since when a place counts. `lines` are the id of a function and a line, in turns, of the
# innermost call first. A place of `is_code` is all from its address to that of the next; its first line is 0.
SCHEMA = """
CREATE TABLE IF NOT EXISTS additions (
    id INTEGER PRIMARY KEY, since INTEGER NOT NULL, is_uploaded INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS called (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, file TEXT NOT NULL, start_line INTEGER NOT NULL,
    UNIQUE (name, file, start_line)
);
CREATE TABLE IF NOT EXISTS places (
    is_code INTEGER, address INTEGER, addition INTEGER NOT NULL, lines TEXT NOT NULL,
    PRIMARY KEY (is_code, address)
) WITHOUT ROWID;
"""
# Lines of places for each function that a table may have: programs of any size have ten or so.
_LINES_A_FUNCTION = 20
# Calls that are inlined into each other.
_DEEPEST = 100
_MOST_ADDRESS = (1 << 63) - 1


class CalledLine(NamedTuple):
    """A function, and a line in it. The start line is 0 if nobody knows it."""

    name: str
    file: str
    start_line: int
    line: int


Lines = tuple[CalledLine, ...]


class Place(NamedTuple):
    """The lines of a place, the innermost call first, and whether uploaded symbols told them."""

    lines: Lines
    is_uploaded: bool


class Code(NamedTuple):
    """The lines that a profile has of the addresses of a build: of calls, and of code that isn't a call.

    If the first line of the latter is 0, the next such address ends it.
    """

    calls: dict[int, Lines]
    others: dict[int, Lines]

    @classmethod
    def none(cls) -> Code:
        """Return the code of a build of which nothing is known."""
        return cls({}, {})

    def __or__(self, other: Code) -> Code:
        """Return what both say; what the first says of an address counts."""
        return Code(other.calls | self.calls, other.others | self.others)


# The code of no build.
NO_CODE: Mapping[str, Code] = MappingProxyType({})


def code_in(
    profile: Profile, text_of: Callable[[int], str], *, is_program: bool
) -> Iterator[tuple[int, Code]]:
    """Yield the code of each mapping of a profile, by the mapping.

    A location of a program's symbols is a call if its first line isn't 0. One of a profile that was taken is
    a call if it is a caller; another says something only if calls were inlined there.
    """
    locations, mappings = profile.locations, profile.mappings
    is_caller = _callers(profile)
    bases = [
        start - offset
        for start, offset in zip(mappings.start.tolist(), mappings.offset.tolist(), strict=True)
    ]
    offsets = locations.lines.offsets.tolist()
    found: dict[int, Code] = {}
    columns = locations.mapping.tolist(), locations.address.tolist(), is_caller.tolist()
    line_of = _line_of(profile, text_of)
    for row, (mapping, address, called) in enumerate(zip(*columns, strict=True)):
        first, last = offsets[row], offsets[row + 1]
        place = address - bases[mapping] if mapping >= 0 else -1
        if not 0 <= place <= _MOST_ADDRESS or not first < last <= first + _DEEPEST:
            continue
        lines = tuple(map(line_of, range(first, last)))
        if not all(line.name and line.file and line.line > 0 for line in lines[1:]) or not lines[0].name:
            continue
        code = found.setdefault(mapping, Code.none())
        if lines[0].line > 0 and (called or is_program):
            code.calls.setdefault(place, lines)
        elif is_program == (lines[0].line == 0) and (is_program or len(lines) > 1):
            code.others.setdefault(place, lines)
    yield from found.items()


def _callers(profile: Profile) -> Bools:
    """Return for each location whether it is a caller in some stack (n_locations)."""
    samples, is_caller = profile.samples, np.zeros(len(profile.locations.address), np.bool_)
    is_inner = np.ones(len(samples.locations), np.bool_)
    begins = samples.location_offsets[:-1]
    is_inner[begins[begins < samples.location_offsets[1:]]] = False
    is_caller[samples.locations[is_inner]] = True
    return is_caller


def _line_of(profile: Profile, text_of: Callable[[int], str]) -> Callable[[int], CalledLine]:
    """Return a function for the lines of a profile."""
    functions, lines = profile.functions, profile.locations.lines
    columns = functions.name.tolist(), functions.filename.tolist(), functions.start_line.tolist()
    known = [*zip(*columns, strict=True)]
    of_line = lines.function.tolist(), lines.line.tolist()

    def line_of(row: int) -> CalledLine:
        function, line = of_line[0][row], of_line[1][row]
        name, file, start = known[function] if function >= 0 else (0, 0, 0)
        return CalledLine(text_of(name), text_of(file), max(start, 0), max(line, 0))

    return line_of


def put_places(
    database: sqlite3.Connection, code: Code, since: int, most_functions: int, *, is_uploaded: bool
) -> bool:
    """Add places to a table, which count for profiles taken since a time; return whether any is new."""
    (has_all,) = database.execute("SELECT EXISTS (SELECT 1 FROM places WHERE is_code = 1)").fetchone()
    kinds = [(0, code.calls)]
    if is_uploaded:
        kinds.append((1, {address: lines for address, lines in code.others.items() if not lines[0].line}))
    elif not has_all:  # else it is known where code was inlined
        kinds.append((0, code.others))
    (count,) = database.execute("SELECT count(*) FROM places").fetchone()
    left = _LINES_A_FUNCTION * most_functions - count
    known: dict[tuple[str, str, int], int] = {}
    (addition,) = database.execute("SELECT coalesce(max(id), 0) + 1 FROM additions").fetchone()
    is_new = False
    for is_code, places in kinds:
        for address, lines in places.items():
            there = database.execute(
                "SELECT 1 FROM places WHERE is_code = ? AND address = ?", (is_code, address)
            ).fetchone()
            left -= len(lines)
            if there is None and left >= 0:
                numbers = ",".join(f"{_function(database, known, line)},{line.line}" for line in lines)
                database.execute(
                    "INSERT INTO places VALUES (?, ?, ?, ?)", (is_code, address, addition, numbers)
                )
                is_new = True
    if is_new:
        database.execute("INSERT INTO additions VALUES (?, ?, ?)", (addition, since, is_uploaded))
    return is_new


def _function(database: sqlite3.Connection, known: dict[tuple[str, str, int], int], line: CalledLine) -> int:
    """Return the number of a line's function in the table, to which it is added if it isn't there."""
    function = line[:3]
    if function not in known:
        database.execute("INSERT OR IGNORE INTO called (name, file, start_line) VALUES (?, ?, ?)", function)
        (known[function],) = database.execute(
            "SELECT id FROM called WHERE name = ? AND file = ? AND start_line = ?", function
        ).fetchone()
    return known[function]


def find_place(database: sqlite3.Connection, address: int, taken: int, *, is_call: bool) -> Place | None:
    """Return the place of an address, as known for a profile taken at a time; None if it isn't known.

    For an address that isn't a call, its first line may be 0. Raises sqlite3.Error, also if the table is one
    without places.
    """
    query = (
        "SELECT lines, is_uploaded, since FROM places JOIN additions ON additions.id = addition"
        " WHERE is_code = ? AND address {} ? ORDER BY address DESC LIMIT 1"
    )
    found = database.execute(query.format("="), (0, address)).fetchone()
    if (found is None or found[2] > taken) and not is_call:
        found = database.execute(query.format("<="), (1, address)).fetchone()
    if found is None or found[2] > taken:
        return None
    numbers = map(int, found[0].split(","))
    lines = []
    for function, line in zip(numbers, numbers, strict=False):
        name, file, start_line = database.execute(
            "SELECT name, file, start_line FROM called WHERE id = ?", (function,)
        ).fetchone()
        lines.append(CalledLine(name, file, start_line, line))
    return Place(tuple(lines), bool(found[1]))
