"""Start lines: where the functions of a Go program begin, by service and build id.

Workers learn them from the service's stored Go profiles and from symbols that were uploaded, and give them
to eBPF profiles of the same build, which have no start lines, and no right lines of callers: those come from
their addresses (`call_places`). A table only grows, and
what it says of a function never changes. A profile gets what was known when it was taken: so one that is sent
twice becomes the same profile twice, whichever collector gets it.

    <service>/<hash of the build id>.sqlite3

The tables are the folder start_lines/ of the data folder, or in the bucket with the blobs.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache, lru_cache, partial
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
from pprof_merge import LimitExceeded, Limits, Profile, ProfileError, decode

from pgo_collector.blobs.copies import Copies
from pgo_collector.blobs.storage import Storage
from pgo_collector.engine.blob_columns import STORED_LIMITS
from pgo_collector.engine.call_places import NO_CODE, SCHEMA, Code, Place, code_in, find_place, put_places
from pgo_collector.engine.validation import within_body_time
from pgo_collector.errors import BodyTooLarge, SymbolsUnreadable

# A file of SQLite: tables of big programs stay on disk, and a look-up reads few pages.
_SUFFIX = ".sqlite3"
# `ends` says where a function ends: at the next start of a known function of its file that isn't a closure in
# it. A row counts for profiles taken at `since` or later, until another row of the function does.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS functions (
    name TEXT PRIMARY KEY, file INTEGER NOT NULL, start_line INTEGER NOT NULL, since INTEGER NOT NULL,
    is_uploaded INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS starts ON functions (file, start_line, name);
CREATE TABLE IF NOT EXISTS ends (
    name TEXT, since INTEGER, line INTEGER NOT NULL, PRIMARY KEY (name, since)
) WITHOUT ROWID;
"""
# Build ids that one upload of symbols may have: a Go program has two, GNU's and Go's.
MOST_BUILD_IDS = 8
_LONGEST_BUILD_ID = 200
# What is added counts for profiles that are taken so much later, and the storage's longest wait later: then
# it is surely written. Who has listed the tables knows all that counts for profiles taken until then; half of
# that time is for clocks of collectors that differ.
DELAY_NANOS = 10 * 10**9
_KNOWN_NANOS = DELAY_NANOS // 2
# How often the end of a function may have come nearer, as more functions became known. A look-up reads them
# all, and a sender could have any number; of a function with more it isn't certain which lines are in it.
_MOST_ENDS = 64
# Closures in a function have its name and, after it, one of the characters from the first to before the last.
_FIRST_OF_CLOSURES, _AFTER_CLOSURES = "-", "/"
_NO_END = 1 << 63

# The file and the first line of each function, by name.
Starts = dict[str, tuple[str, int]]


class KnownFunction(NamedTuple):
    """The first line of a function, and whether uploaded symbols told it, not a Go profile."""

    start_line: int
    is_uploaded: bool


class Function(NamedTuple):
    """A function of a table: its lines, and when that was known.

    Each end counts for profiles taken from its time on, in ns since 1970; the latest comes first.
    """

    known: KnownFunction
    since: int
    ends: Sequence[tuple[int, int]]

    def has(self, line: int, taken: int) -> bool:
        """Return whether a line is surely in it, by what counts for a profile taken at `taken`.

        An eBPF profiler names the function whose machine code ran, and the line of a call that was inlined
        into it. So the line must be in the function: not before its start, and not after the start of another
        known function of the file, unless that is a closure in it.
        """
        if self.since > taken or self.known.start_line > line:
            return False
        return line < next((end for since, end in self.ends if since <= taken), _NO_END)


class StartLines:
    """The functions of one build, in the file of its table."""

    def __init__(self, path: Path) -> None:
        """Open the file, which must not change. Raises sqlite3.Error if it isn't a table."""
        uri = f"file:{quote(str(path))}?mode=ro&immutable=1"
        self._database = sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)
        self._database.execute("SELECT name FROM ends LIMIT 0")

    def find(self, name: str, file: str) -> Function | None:
        """Return the function of a name if it is in a file, from one place of an index."""
        with suppress(sqlite3.Error, UnicodeEncodeError):
            return self._find(name, file)
        return None

    def place(self, address: int, taken: int, *, is_call: bool) -> Place | None:
        """Return the lines of an address in the program's file, as known for a profile taken at a time.

        None if it isn't known, also if it isn't known to be a call and `is_call`.
        """
        with suppress(sqlite3.Error, OverflowError):
            return find_place(self._database, address, taken, is_call=is_call)
        return None

    def _find(self, name: str, file: str) -> Function | None:
        found = self._database.execute(
            "SELECT start_line, is_uploaded, since FROM functions WHERE name = ?"
            " AND file = (SELECT id FROM files WHERE name = ?)",
            (name, file),
        ).fetchone()
        if found is None:
            return None
        start_line, is_uploaded, since = found
        ends = self._database.execute(
            "SELECT since, line FROM ends WHERE name = ? ORDER BY since DESC LIMIT ?", (name, _MOST_ENDS + 1)
        ).fetchall()
        known = KnownFunction(start_line, bool(is_uploaded))
        return Function(known, since, ends) if len(ends) <= _MOST_ENDS else None


def _put_ends(database: sqlite3.Connection, file: int, since: int) -> None:
    """Put where the functions of a file end into the table, from a time on since which some count."""
    of_file = "name IN (SELECT name FROM functions WHERE file = ?)"
    database.execute(f"DELETE FROM ends WHERE {of_file} AND since >= ?", (file, since))  # noqa: S608
    before = f"SELECT name, line, max(since) FROM ends WHERE {of_file} GROUP BY name"  # noqa: S608
    last = {name: line for name, line, _ in database.execute(before, (file,))}
    functions = database.execute(
        "SELECT start_line, name, since FROM functions WHERE file = ?", (file,)
    ).fetchall()
    for version in sorted({of for _, _, of in functions if of >= since}):
        ends = _ends_of([(start, name) for start, name, of in functions if of <= version])
        new = {name: line for name, line in ends.items() if last.get(name) != line}
        rows = [(name, version, line) for name, line in new.items()]
        database.executemany("INSERT INTO ends VALUES (?, ?, ?)", rows)
        last |= new


def _ends_of(functions: Sequence[tuple[int, str]]) -> dict[str, int]:
    """Return where functions of one file end, given their starts and names; without those that don't.

    It takes the time of a sort, however functions and closures lie: from the last start on, two trees have
    the nearest start of the names before and behind those of a function's closures, which are neighbours.
    """
    names = sorted(name for _, name in functions)
    before, behind = _Nearest(len(names)), _Nearest(len(names))
    ends: dict[str, int] = {}
    for start, of_start in groupby(sorted(functions, reverse=True), itemgetter(0)):
        group = [name for _, name in of_start]
        for name in group:
            first = bisect_left(names, name + _FIRST_OF_CLOSURES)
            last = bisect_left(names, name + _AFTER_CLOSURES)
            end = min(before.among(first), behind.among(len(names) - last))
            if end < _NO_END:
                ends[name] = end
        for name in group:
            place = bisect_left(names, name)
            before.put(place, start)
            behind.put(len(names) - 1 - place, start)
    return ends


class _Nearest:
    """The smallest start among the first places, each later start being smaller: a Fenwick tree."""

    def __init__(self, count: int) -> None:
        self._starts = [_NO_END] * (count + 1)

    def put(self, place: int, start: int) -> None:
        """Put a start, which is smaller than all before, at a place from 0 on."""
        place += 1
        while place < len(self._starts):
            self._starts[place] = start
            place += place & -place

    def among(self, places: int) -> int:
        """Return the smallest start at the first places."""
        nearest = _NO_END
        while places:
            nearest = min(nearest, self._starts[places])
            places &= places - 1
        return nearest


class Tables(NamedTuple):
    """The tables of all services: an area beside the blobs, and where copies of those in a bucket are."""

    storage: Storage
    copies: Copies

    def versions(self, service: str, taken: int) -> Mapping[str, str]:
        """Return the versions of a service's tables with all that counts for a profile taken at `taken`.

        Raises OSError.
        """
        return self.storage.versions(service, taken - _KNOWN_NANOS)

    def read(self, service: str, build_id: str, versions: Mapping[str, str]) -> StartLines | None:
        """Return the functions of a build; None if nothing is known of it, or the table is damaged.

        Raises OSError.
        """
        file = _file(build_id)
        version = versions.get(file)
        return None if version is None else _cached(self, f"{service}/{file}", version)


@lru_cache(maxsize=64)
def _cached(tables: Tables, name: str, version: str) -> StartLines | None:
    """Return a table as long as it is the same."""
    while True:
        try:
            file = tables.storage.open_local(name, version, tables.copies)
        except FileNotFoundError:
            return None
        with file:
            try:
                return StartLines(Path(file.name))
            except sqlite3.Error:
                if os.fstat(file.fileno()).st_nlink:  # it wasn't just deleted
                    return None


def _file(build_id: str) -> str:
    """Return the file name of a build's table; a build id may be any text."""
    return f"{hashlib.sha256(build_id.encode()).hexdigest()[:32]}{_SUFFIX}"


class Additions(NamedTuple):
    """Adds to the tables of a service, each up to a bound on its functions.

    New start lines count for profiles taken at `since` or later, in ns since 1970.
    """

    storage: Storage
    service: str
    most_functions: int
    since: int

    def add(
        self, found: Mapping[str, Starts], code: Mapping[str, Code] = NO_CODE, *, is_uploaded: bool
    ) -> list[str]:
        """Add functions and code to the tables of their builds; return the names of those that have grown.

        At most as many builds grow as one upload may have.
        """
        grown = []
        for build_id, starts in islice(found.items(), MOST_BUILD_IDS):
            file = _file(build_id)
            of_build = code.get(build_id, Code.none())
            change = partial(self._grown, starts=starts, code=of_build, is_uploaded=is_uploaded)
            if self.storage.update(f"{self.service}/{file}", change):
                grown.append(file.removesuffix(_SUFFIX))
        return grown

    def _grown(self, table: bytes | None, *, starts: Starts, code: Code, is_uploaded: bool) -> bytes | None:
        """Return a table with these functions and this code, too; None if none of it is new."""
        try:
            return self._inserted(table, starts, code, is_uploaded=is_uploaded)
        except sqlite3.DatabaseError:  # the table is damaged
            return self._inserted(None, starts, code, is_uploaded=is_uploaded)

    def _inserted(
        self, table: bytes | None, starts: Starts, code: Code, *, is_uploaded: bool
    ) -> bytes | None:
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
            if table:
                database.deserialize(table)
            database.executescript(_SCHEMA + SCHEMA)
            (count,) = database.execute("SELECT count(*) FROM functions").fetchone()
            database.execute("BEGIN")
            database.executemany(
                "INSERT OR IGNORE INTO files (name) VALUES (?)", {(file,) for file, _ in starts.values()}
            )
            before = database.total_changes
            files = dict(database.execute("SELECT name, id FROM files"))
            changed = set[int]()
            for name, (file, line) in starts.items():
                if count + database.total_changes - before >= self.most_functions:
                    break
                row = name, files[file], line, self.since, is_uploaded
                added = database.execute("INSERT OR IGNORE INTO functions VALUES (?, ?, ?, ?, ?)", row)
                if added.rowcount:
                    changed.add(files[file])
            grown = database.total_changes - before
            for each in changed:
                _put_ends(database, each, self.since)
            of_places = self.since, self.most_functions
            has_new_places = put_places(database, code, *of_places, is_uploaded=is_uploaded)
            database.execute("COMMIT")
            return database.serialize() if grown or has_new_places else None


def learn_start_lines(storage: Storage, blobs: Sequence[str], additions: Additions) -> list[str]:
    """Add what Go profiles say to the tables of their builds, as `Additions.add` does; a task.

    Blobs that can't be read are passed over. Raises StorageFails.
    """
    found: dict[str, Starts] = {}
    code: dict[str, Code] = {}
    for content in storage.read_all(blobs):
        if isinstance(content, OSError):
            continue
        with suppress(ProfileError):
            profile = decode(content, STORED_LIMITS)
            text_of = _texts(profile)
            for mapping, function in _functions_in_mappings(profile):
                if build_id := text_of(profile.mappings.build_id[mapping]):
                    _add_function(profile, text_of, function, found.setdefault(build_id, {}))
            for mapping, of_mapping in code_in(profile, text_of, is_program=False):
                build_id = text_of(profile.mappings.build_id[mapping])
                code[build_id] = code.get(build_id, Code.none()) | of_mapping
    return additions.add(found, code, is_uploaded=False)


class AddedSymbols(NamedTuple):
    """The build ids of symbols, and the number of their functions."""

    build_ids: tuple[str, ...]
    functions: int


@within_body_time
def add_symbols(body: Path, additions: Additions, limits: Limits) -> AddedSymbols:
    """Add uploaded symbols to the tables of their builds, as `Additions.add` does; a task.

    Symbols are a pprof profile, gzip or not: each of its functions is in each of its mappings' builds.
    Raises SymbolsUnreadable, BodyTooLarge, BodyTooCostly and OSError.
    """
    try:
        profile = decode(body.read_bytes(), limits)
    except LimitExceeded as error:
        if error.limit not in {"inflated_bytes", "compressed_bytes"}:
            raise
        raise BodyTooLarge(
            f"the symbols are larger than {limits.inflated_bytes:,} bytes"
            " (PGOF_MAX_INFLATED_BYTES or PGOF_SYMBOLS_BYTES)"
        ) from error
    except ProfileError as error:
        raise SymbolsUnreadable(
            f"not symbols: {error}; send a pprof profile with a program's functions, as pgo-agent symbols"
        ) from error
    text_of = _texts(profile)
    builds = dict.fromkeys(filter(None, map(text_of, profile.mappings.build_id.tolist())))
    if not builds or len(builds) > MOST_BUILD_IDS:
        raise SymbolsUnreadable(
            f"the symbols have {len(builds)} build ids; give the program's, 1 to {MOST_BUILD_IDS}, each in a"
            " mapping"
        )
    if any(len(build_id) > _LONGEST_BUILD_ID for build_id in builds):
        raise SymbolsUnreadable(f"the symbols have a build id of more than {_LONGEST_BUILD_ID} letters")
    starts: Starts = {}
    for function in range(len(profile.functions.start_line)):
        _add_function(profile, text_of, function, starts)
    if not starts:
        raise SymbolsUnreadable("no function of the symbols has a name, a file and a start line")
    if len(starts) > additions.most_functions:
        raise BodyTooLarge(
            f"the symbols have {len(starts):,} functions; the limit is {additions.most_functions:,}"
            " (PGOF_MAX_INFLATED_BYTES or PGOF_SYMBOLS_FUNCTIONS)"
        )
    code = Code.none()
    for _, each in code_in(profile, text_of, is_program=not len(profile.samples)):
        code |= each
    additions.add(dict.fromkeys(builds, starts), dict.fromkeys(builds, code), is_uploaded=True)
    return AddedSymbols(tuple(builds), len(starts))


def _functions_in_mappings(profile: Profile) -> Iterator[tuple[int, int]]:
    """Yield the indexes of each mapping, and of each function that its locations have, once."""
    locations = profile.locations
    mapping = np.repeat(locations.mapping, np.diff(locations.lines.offsets))
    pairs = np.unique(np.stack((mapping, locations.lines.function), axis=1), axis=0)
    for of_mapping, function in pairs.tolist():
        if of_mapping >= 0 and function >= 0:
            yield of_mapping, function


def _add_function(profile: Profile, text_of: Callable[[int], str], function: int, starts: Starts) -> None:
    """Add a function that has a name, a file and a first line; the first of a name counts."""
    functions = profile.functions
    line = int(functions.start_line[function])
    name, file = text_of(functions.name[function]), text_of(functions.filename[function])
    if name and file and line > 0:
        starts.setdefault(name, (file, line))


def _texts(profile: Profile) -> Callable[[int], str]:
    """Return a function for the strings of a profile, which decodes each once: any number of functions may
    have a long one. A string that isn't UTF-8 is empty.
    """

    @cache
    def text_of(string: int) -> str:
        with suppress(UnicodeDecodeError):
            return profile.strings[string].decode()
        return ""

    return text_of
