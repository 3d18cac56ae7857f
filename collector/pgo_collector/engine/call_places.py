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
# innermost call first. A place in `code` is all from its address to that of the next; its first line is 0.
SCHEMA = """
CREATE TABLE IF NOT EXISTS additions (
    id INTEGER PRIMARY KEY, since INTEGER NOT NULL, is_uploaded INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS called (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, file INTEGER NOT NULL, start_line INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS calls (
    address INTEGER PRIMARY KEY, addition INTEGER NOT NULL, lines TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS code (
    address INTEGER PRIMARY KEY, addition INTEGER NOT NULL, lines TEXT NOT NULL
);
"""
# Lines of places for each function that a table may have: programs of any size have ten or so.
_LINES_A_FUNCTION = 20
# Calls that are inlined into each other; a look-up reads each.
_DEEPEST = 32
_MOST_ADDRESS = (1 << 63) - 1


# A function, by its name, its file and its start line, which is 0 if nobody knows it; and a line in it.
CalledLine = tuple[str, str, int, int]
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
    every = _lines(profile, text_of)
    for row, (mapping, address, called) in enumerate(zip(*columns, strict=True)):
        first, last = offsets[row], offsets[row + 1]
        place = address - bases[mapping] if mapping >= 0 else -1
        if not 0 <= place <= _MOST_ADDRESS or not first < last <= first + _DEEPEST:
            continue
        lines = tuple(every[first:last])
        if not all(name and file for name, file, _, _ in lines) or not all(of[3] for of in lines[1:]):
            continue
        if mapping not in found:
            found[mapping] = Code.none()
        has_line = lines[0][3] > 0
        if has_line and (called or is_program):
            found[mapping].calls.setdefault(place, lines)
        elif is_program != has_line and (is_program or len(lines) > 1):
            found[mapping].others.setdefault(place, lines)
    yield from found.items()


def _callers(profile: Profile) -> Bools:
    """Return for each location whether it is a caller in some stack (n_locations)."""
    samples, is_caller = profile.samples, np.zeros(len(profile.locations.address), np.bool_)
    is_inner = np.ones(len(samples.locations), np.bool_)
    begins = samples.location_offsets[:-1]
    is_inner[begins[begins < samples.location_offsets[1:]]] = False
    is_caller[samples.locations[is_inner]] = True
    return is_caller


def _lines(profile: Profile, text_of: Callable[[int], str]) -> list[CalledLine]:
    """Return the lines of a profile's locations."""
    functions, lines = profile.functions, profile.locations.lines
    columns = functions.name.tolist(), functions.filename.tolist(), functions.start_line.tolist()
    known = [
        (text_of(name), text_of(file), max(start, 0)) for name, file, start in zip(*columns, strict=True)
    ]
    known.append(("", "", 0))  # of a line without a function, whose number is -1
    of_lines = zip(lines.function.tolist(), np.maximum(lines.line, 0).tolist(), strict=True)
    return [(*known[function], line) for function, line in of_lines]


def put_places(
    database: sqlite3.Connection, code: Code, since: int, most_functions: int, *, is_uploaded: bool
) -> bool:
    """Add places to a table, which count for profiles taken since a time; return whether any is new."""
    (has_all,) = database.execute("SELECT EXISTS (SELECT 1 FROM code)").fetchone()
    kinds = [("calls", code.calls)]
    if is_uploaded:
        kinds.append(("code", {address: lines for address, lines in code.others.items() if not lines[0][3]}))
    elif not has_all:  # else it is known where code was inlined
        kinds.append(("calls", code.others))
    (count,) = database.execute(
        "SELECT (SELECT count(*) FROM calls) + (SELECT count(*) FROM code)"
    ).fetchone()
    left = _LINES_A_FUNCTION * most_functions - count
    known = _Functions(database)
    (addition,) = database.execute("SELECT coalesce(max(id), 0) + 1 FROM additions").fetchone()

    def rows(places: dict[int, Lines]) -> Iterator[tuple[int, int, str]]:
        nonlocal left
        for address, lines in sorted(places.items()):
            left -= len(lines)
            if left < 0:
                return
            numbers = ",".join([f"{known[line[:3]]},{line[3]}" for line in lines])
            yield address, addition, numbers

    added = 0
    for table, places in kinds:
        insert = f"INSERT OR IGNORE INTO {table} VALUES (?, ?, ?)"  # noqa: S608 - one of two
        added += database.executemany(insert, rows(places)).rowcount
    if added:
        database.execute("INSERT INTO additions VALUES (?, ?, ?)", (addition, since, is_uploaded))
    return added > 0


class _Functions(dict[tuple[str, str, int], int]):
    """The numbers of functions in a table, by name, file and start line; new ones are added to it."""

    def __init__(self, database: sqlite3.Connection) -> None:
        query = (
            "SELECT called.name, files.name, start_line, called.id FROM called JOIN files ON files.id = file"
        )
        super().__init__({(name, file, line): id_ for name, file, line, id_ in database.execute(query)})
        self._database = database

    def __missing__(self, function: tuple[str, str, int]) -> int:
        name, file, start_line = function
        self._database.execute("INSERT OR IGNORE INTO files (name) VALUES (?)", (file,))
        self[function] = number = len(self) + 1
        self._database.execute(
            "INSERT INTO called SELECT ?, ?, id, ? FROM files WHERE name = ?",
            (number, name, start_line, file),
        )
        return number


def find_place(database: sqlite3.Connection, address: int, taken: int, *, is_call: bool) -> Place | None:
    """Return the place of an address, as known for a profile taken at a time; None if it isn't known.

    For an address that isn't a call, its first line may be 0. Raises sqlite3.Error, also if the table is one
    without places.
    """
    query = (
        "SELECT lines, is_uploaded, since FROM {} JOIN additions ON additions.id = addition"
        " WHERE address {} ? ORDER BY address DESC LIMIT 1"
    )
    found = database.execute(query.format("calls", "="), (address,)).fetchone()
    if (found is None or found[2] > taken) and not is_call:
        found = database.execute(query.format("code", "<="), (address,)).fetchone()
    if found is None or found[2] > taken:
        return None
    numbers = map(int, found[0].split(","))
    lines = []
    for function, line in zip(numbers, numbers, strict=False):
        name, file, start_line = database.execute(
            "SELECT called.name, files.name, start_line FROM called JOIN files ON files.id = file"
            " WHERE called.id = ?",
            (function,),
        ).fetchone()
        lines.append((name, file, start_line, line))
    return Place(tuple(lines), bool(found[1]))
