"""Start lines: where the functions of a Go program begin, as its own profiles say, by service and build id.

Workers learn them from stored profiles, and give them to eBPF profiles of the same build, which have names
and lines but no start lines. A table only grows, and what it says of a function never changes. A profile gets
what was known when it was taken: so one that is sent twice becomes the same profile twice.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pprof_merge import Profile, ProfileError, decode

from pgo_collector.engine.blob_columns import STORED_LIMITS

_SUFFIX = ".json"
# Functions in a table, and builds of a service whose tables are kept: the ones that learned something last.
_MOST_FUNCTIONS = 200_000
MOST_BUILDS = 50
# Closures in a function that are looked at. A profile can claim any number of them.
_MOST_CLOSURES = 1000
# What comes after a function's name in those of the closures in it.
_OF_CLOSURES = (".", "-")


class KnownFunction(NamedTuple):
    """The file of a function, its first line, and from when on profiles get it, in ns since 1970."""

    file: str
    start_line: int
    since: int


class StartLines:
    """The functions of one build, by name."""

    def __init__(self, functions: Mapping[str, KnownFunction]) -> None:
        self.functions = functions
        by_file: dict[str, list[tuple[int, str]]] = {}
        for name, known in functions.items():
            by_file.setdefault(known.file, []).append((known.start_line, name))
        self._by_file = {file: sorted(starts) for file, starts in by_file.items()}

    def find(self, name: str, file: str, line: int, taken: int) -> KnownFunction | None:
        """Return the function that a frame of a profile taken at `taken` is in; None if that isn't certain.

        An eBPF profiler names the function whose machine code ran, and the line of a call that was inlined
        into it. So the line must be in the function: in the same file, not before its start, and not after
        the start of another known function, unless that is a closure in it.
        """
        known = self.functions.get(name)
        if known is None or known.since > taken or known.file != file or line < known.start_line:
            return None
        starts = self._by_file[file]
        before = bisect_right(starts, (line, "\U0010ffff"))
        for start, other in reversed(starts[max(0, before - _MOST_CLOSURES) : before]):
            if start == known.start_line:
                return known
            is_closure = other.startswith(name) and other[len(name) :].startswith(_OF_CLOSURES)
            if not is_closure and self.functions[other].since <= taken:
                break
        return None


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
    functions = _read(path)
    return StartLines(functions) if functions else None


def _read(path: Path) -> dict[str, KnownFunction]:
    with suppress(OSError, ValueError, TypeError, AttributeError):
        return {name: KnownFunction(*known) for name, known in json.loads(path.read_bytes()).items()}
    return {}


def learn_start_lines(
    blobs: Sequence[Path], folder: Path, service: str, since: int, parts: Sequence[Path]
) -> list[tuple[Path, Path]]:
    """Add what Go profiles say to the tables of their builds; a task.

    What is new counts for profiles taken at `since` or later, in ns since 1970. Each table that has grown is
    written to one of `parts`; return these files, and where each belongs. Blobs that can't be read are passed
    over, and so are builds for which there is no part left.
    """
    tables: dict[str, dict[str, KnownFunction]] = {}
    grown: dict[str, None] = {}
    for blob in blobs:
        with suppress(ProfileError, OSError):
            for build_id, name, file, line in _functions(decode(blob.read_bytes(), STORED_LIMITS)):
                if build_id not in tables:
                    tables[build_id] = _read(table_path(folder, service, build_id))
                functions = tables[build_id]
                if name not in functions and len(functions) < _MOST_FUNCTIONS:
                    functions[name] = KnownFunction(file, line, since)
                    grown[build_id] = None
    written = []
    for build_id, part in zip(grown, parts, strict=False):
        part.write_text(json.dumps(tables[build_id], separators=(",", ":")))
        written.append((part, table_path(folder, service, build_id)))
    return written


def _functions(profile: Profile) -> Iterator[tuple[str, str, str, int]]:
    """Yield the build id, name, file and first line of each function with a first line, each once."""
    locations, functions, strings = profile.locations, profile.functions, profile.strings
    mapping = np.repeat(locations.mapping, np.diff(locations.lines.offsets))
    pairs = np.unique(np.stack((mapping, locations.lines.function), axis=1), axis=0)
    for of_mapping, function in pairs.tolist():
        if of_mapping < 0 or function < 0:
            continue
        build_id, line = strings[profile.mappings.build_id[of_mapping]], int(functions.start_line[function])
        name, file = strings[functions.name[function]], strings[functions.filename[function]]
        if build_id and name and file and line > 0:
            with suppress(UnicodeDecodeError):
                yield build_id.decode(), name.decode(), file.decode(), line
