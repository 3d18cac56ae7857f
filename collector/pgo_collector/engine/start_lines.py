"""Start lines: where the functions of a Go program begin, by service and build id.

Workers learn them from the service's stored Go profiles and from symbols that were uploaded, and give them
to eBPF profiles of the same build, which have names and lines but no start lines. A table only grows, and
what it says of a function never changes. A profile gets what was known when it was taken: so one that is sent
twice becomes the same profile twice.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
from pprof_merge import LimitExceeded, Limits, Profile, ProfileError, decode

from pgo_collector.engine.blob_columns import STORED_LIMITS
from pgo_collector.errors import BodyTooLarge, SymbolsUnreadable
from pgo_collector.storage.storage import Storage

# A file of SQLite: tables of big programs stay on disk, and a look-up reads few pages.
_SUFFIX = ".sqlite3"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS functions (
    name TEXT PRIMARY KEY, file INTEGER NOT NULL, start_line INTEGER NOT NULL, since INTEGER NOT NULL,
    is_uploaded INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS starts ON functions (file, start_line, name);
"""
# Build ids that one upload of symbols may have: a Go program has two, GNU's and Go's.
MOST_BUILD_IDS = 8
_LONGEST_BUILD_ID = 200
# Closures in a function that are looked at. A profile can claim any number of them.
_MOST_CLOSURES = 1000
# What comes after a function's name in those of the closures in it.
_OF_CLOSURES = (".", "-")

# The file and the first line of each function, by name.
Starts = dict[str, tuple[str, int]]


class KnownFunction(NamedTuple):
    """The first line of a function, and whether uploaded symbols told it, not a Go profile."""

    start_line: int
    is_uploaded: bool


class StartLines:
    """The functions of one build, in the file of its table."""

    def __init__(self, path: Path) -> None:
        """Open the file, which must not change. Raises sqlite3.Error if it isn't a table."""
        uri = f"file:{quote(str(path))}?mode=ro&immutable=1"
        self._database = sqlite3.connect(uri, uri=True, check_same_thread=False)
        self._database.execute("SELECT name FROM functions JOIN files USING (name) LIMIT 1")

    def find(self, name: str, file: str, line: int, taken: int) -> KnownFunction | None:
        """Return the function that a frame of a profile taken at `taken` is in; None if that isn't certain.

        An eBPF profiler names the function whose machine code ran, and the line of a call that was inlined
        into it. So the line must be in the function: in the same file, not before its start, and not after
        the start of another known function, unless that is a closure in it.
        """
        with suppress(sqlite3.Error, UnicodeEncodeError, OverflowError):
            return self._find(name, file, line, taken)
        return None

    def _find(self, name: str, file: str, line: int, taken: int) -> KnownFunction | None:
        known = self._database.execute(
            "SELECT start_line, is_uploaded, file FROM functions WHERE name = ?1 AND since <= ?2"
            " AND start_line <= ?3 AND file = (SELECT id FROM files WHERE name = ?4)",
            (name, taken, line, file),
        ).fetchone()
        if known is None:
            return None
        start_line, is_uploaded, file_id = known
        before = self._database.execute(
            "SELECT name, since FROM functions WHERE file = ? AND start_line > ? AND start_line <= ?"
            " ORDER BY start_line DESC LIMIT ?",
            (file_id, start_line, line, _MOST_CLOSURES),
        ).fetchall()
        if len(before) == _MOST_CLOSURES:
            return None
        for other, since in before:
            is_closure = other.startswith(name) and other[len(name) :].startswith(_OF_CLOSURES)
            if not is_closure and since <= taken:
                return None
        return KnownFunction(start_line, bool(is_uploaded))


def table_path(folder: Path, service: str, build_id: str) -> Path:
    """Return the file of a build's table; a build id may be any text."""
    return folder / service / f"{hashlib.sha256(build_id.encode()).hexdigest()[:32]}{_SUFFIX}"


def read_start_lines(folder: Path, service: str, build_id: str) -> StartLines | None:
    """Return the functions of a build; None if nothing is known of it, or the file can't be read."""
    path = table_path(folder, service, build_id)
    try:
        state = path.stat()
    except OSError:
        return None
    return _cached(path, state.st_mtime_ns, state.st_size, state.st_ino)


@lru_cache(maxsize=64)
def _cached(path: Path, *_: int) -> StartLines | None:
    """Return a table as long as the file is the same."""
    with suppress(sqlite3.Error):
        return StartLines(path)
    return None


class TableFolder(NamedTuple):
    """The tables of a service, in a folder with those of all services, and the bound on a table's functions.

    What is new in them counts for profiles taken at `since` or later, in ns since 1970.
    """

    folder: Path
    service: str
    most_functions: int
    since: int

    def add(
        self, found: Mapping[str, Starts], parts: Sequence[Path], *, is_uploaded: bool
    ) -> list[tuple[Path, Path]]:
        """Add functions to the tables of their builds; builds for which there is no part are passed over.

        Each table that has grown is written to one of `parts`; return these files, and where each belongs.
        """
        written = []
        for (build_id, starts), part in zip(found.items(), parts, strict=False):
            path = table_path(self.folder, self.service, build_id)
            if self._write(path, part, starts, is_uploaded=is_uploaded):
                written.append((part, path))
        return written

    def _write(self, path: Path, part: Path, starts: Starts, *, is_uploaded: bool) -> bool:
        """Write a table with these functions, too, to the file `part`; return whether any is new."""
        part.unlink(missing_ok=True)  # of a worker that has died
        with suppress(FileNotFoundError):
            shutil.copyfile(path, part)
        try:
            return self._insert(part, starts, is_uploaded=is_uploaded)
        except sqlite3.DatabaseError:  # the table is damaged
            part.unlink()
            return self._insert(part, starts, is_uploaded=is_uploaded)

    def _insert(self, part: Path, starts: Starts, *, is_uploaded: bool) -> bool:
        with closing(sqlite3.connect(part, isolation_level=None)) as database:
            # Nobody reads the file until it is whole, so it needs no journal; who places it syncs it.
            database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _SCHEMA)
            (count,) = database.execute("SELECT count(*) FROM functions").fetchone()
            database.execute("BEGIN")
            database.executemany(
                "INSERT OR IGNORE INTO files (name) VALUES (?)", {(file,) for file, _ in starts.values()}
            )
            before = database.total_changes
            files = dict(database.execute("SELECT name, id FROM files"))
            for name, (file, line) in starts.items():
                if count + database.total_changes - before >= self.most_functions:
                    break
                row = name, files[file], line, self.since, is_uploaded
                database.execute("INSERT OR IGNORE INTO functions VALUES (?, ?, ?, ?, ?)", row)
            grown = database.total_changes > before
            database.execute("COMMIT")
            return grown


def learn_start_lines(
    storage: Storage, blobs: Sequence[str], tables: TableFolder, parts: Sequence[Path]
) -> list[tuple[Path, Path]]:
    """Add what Go profiles say to the tables of their builds, as `TableFolder.add` does; a task.

    Blobs that can't be read are passed over. Raises StorageFails.
    """
    found: dict[str, Starts] = {}
    for content in storage.read_all(blobs):
        if isinstance(content, OSError):
            continue
        with suppress(ProfileError):
            profile = decode(content, STORED_LIMITS)
            for mapping, function in _functions_in_mappings(profile):
                if build_id := _text(profile, profile.mappings.build_id[mapping]):
                    _add_function(profile, function, found.setdefault(build_id, {}))
    return tables.add(found, parts, is_uploaded=False)


class AddedSymbols(NamedTuple):
    """The build ids of symbols, the number of their functions, and the tables that have grown."""

    build_ids: tuple[str, ...]
    functions: int
    written: list[tuple[Path, Path]]


def add_symbols(body: Path, tables: TableFolder, limits: Limits, parts: Sequence[Path]) -> AddedSymbols:
    """Add uploaded symbols to the tables of their builds, as `TableFolder.add` does; a task.

    Symbols are a pprof profile, gzip or not: each of its functions is in each of its mappings' builds.
    Raises SymbolsUnreadable, BodyTooLarge and OSError.
    """
    try:
        profile = decode(body.read_bytes(), limits)
    except LimitExceeded as error:
        if error.limit not in {"inflated_bytes", "compressed_bytes"}:
            raise
        raise BodyTooLarge(
            f"the symbols are larger than {limits.inflated_bytes:,} bytes (PGOF_SYMBOLS_BYTES)"
        ) from error
    except ProfileError as error:
        raise SymbolsUnreadable(
            f"not symbols: {error}; send a pprof profile with a program's functions, as pgo-agent symbols"
        ) from error
    builds = dict.fromkeys(filter(None, (_text(profile, id_) for id_ in profile.mappings.build_id.tolist())))
    if not builds or len(builds) > MOST_BUILD_IDS:
        raise SymbolsUnreadable(
            f"the symbols have {len(builds)} build ids; give the program's, 1 to {MOST_BUILD_IDS}, each in a"
            " mapping"
        )
    if any(len(build_id) > _LONGEST_BUILD_ID for build_id in builds):
        raise SymbolsUnreadable(f"the symbols have a build id of more than {_LONGEST_BUILD_ID} letters")
    starts: Starts = {}
    for function in range(len(profile.functions.start_line)):
        _add_function(profile, function, starts)
    if not starts:
        raise SymbolsUnreadable("no function of the symbols has a name, a file and a start line")
    if len(starts) > tables.most_functions:
        raise BodyTooLarge(
            f"the symbols have {len(starts):,} functions, and may have {tables.most_functions:,}"
            " (PGOF_SYMBOLS_FUNCTIONS)"
        )
    written = tables.add(dict.fromkeys(builds, starts), parts, is_uploaded=True)
    return AddedSymbols(tuple(builds), len(starts), written)


def _functions_in_mappings(profile: Profile) -> Iterator[tuple[int, int]]:
    """Yield the indexes of each mapping, and of each function that its locations have, once."""
    locations = profile.locations
    mapping = np.repeat(locations.mapping, np.diff(locations.lines.offsets))
    pairs = np.unique(np.stack((mapping, locations.lines.function), axis=1), axis=0)
    for of_mapping, function in pairs.tolist():
        if of_mapping >= 0 and function >= 0:
            yield of_mapping, function


def _add_function(profile: Profile, function: int, starts: Starts) -> None:
    """Add a function that has a name, a file and a first line; the first of a name counts."""
    functions = profile.functions
    line = int(functions.start_line[function])
    name, file = _text(profile, functions.name[function]), _text(profile, functions.filename[function])
    if name and file and line > 0:
        starts.setdefault(name, (file, line))


def _text(profile: Profile, string: int) -> str:
    """Return a string of a profile; an empty one if it isn't UTF-8."""
    with suppress(UnicodeDecodeError):
        return profile.strings[string].decode()
    return ""
