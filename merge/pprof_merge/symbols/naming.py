"""Name the functions of a profile that has addresses only: a profile and tables of symbols, to a profile.

Addresses are looked up as they are, as `go tool pprof` does: who writes a profile puts a caller's address
within its call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pprof_merge.arrays import Bools, Int64s, Ints
from pprof_merge.columns.ragged import offsets_of, spans
from pprof_merge.profile import Profile
from pprof_merge.profile.records import Functions, Lines, Locations
from pprof_merge.symbols.table import Frame, SymbolTable


def with_names(profile: Profile, tables: Mapping[str, SymbolTable]) -> Profile:
    """Return a profile whose locations without lines have those of the tables, which are by build id.

    Calls that are inlined become lines. Functions have the names that linkers know, which views demangle.
    Samples stay as they are, row by row, so that some may now have equal stacks. A profile of which no
    location is in a table is returned as it is.
    """
    found = _frames(profile, tables)
    if not found:
        return profile
    added = _Functions(profile)
    lines = {row: [(added.row(frame), frame.line) for frame in frames] for row, frames in found.items()}
    locations = replace(profile.locations, lines=_with_lines(profile.locations.lines, lines))
    return profile.replace(
        strings=added.strings,
        functions=added.table(),
        locations=locations,
        mappings=replace(profile.mappings, flags=_flags(profile.mappings.flags, locations)),
    )


def bare_builds(profile: Profile) -> set[str]:
    """Return the build ids of the programs and libraries that have locations without lines."""
    mappings, locations = profile.mappings, profile.locations
    rows = np.unique(locations.mapping[np.diff(locations.lines.offsets) == 0])
    build_ids = mappings.build_id[rows[rows >= 0]].tolist()
    return {profile.strings[row].decode(errors="replace") for row in build_ids} - {""}


def _frames(profile: Profile, tables: Mapping[str, SymbolTable]) -> dict[int, list[Frame]]:
    """Return the frames of each location that has no lines, by row, if a table knows them."""
    mappings, locations = profile.mappings, profile.locations
    found = {}
    for mapping, row in enumerate(mappings.build_id.tolist()):
        table = tables.get(profile.strings[row].decode(errors="replace")) if row else None
        if table is None:
            continue
        moved = int(mappings.start[mapping]) - int(mappings.offset[mapping])
        is_bare = (locations.mapping == mapping) & (np.diff(locations.lines.offsets) == 0)
        for location in np.flatnonzero(is_bare).tolist():
            if frames := table.frames(int(locations.address[location]) - moved):
                found[location] = frames
    return found


class _Functions:
    """The functions of a profile, to which more are added."""

    def __init__(self, profile: Profile) -> None:
        self.strings = [*profile.strings]
        self._functions = profile.functions
        self._added: dict[tuple[str, str], int] = {}
        self._texts = {"": 0}

    def row(self, frame: Frame) -> int:
        """Return the row of a frame's function."""
        return self._added.setdefault((frame.name, frame.file), len(self._functions) + len(self._added))

    def table(self) -> Functions:
        """Return the table with all of them. Where they start isn't known."""
        names, files = ([*map(self._text, column)] for column in zip(*self._added, strict=True))
        before = self._functions
        return Functions(
            name=np.concatenate((before.name, names)),
            system_name=np.concatenate((before.system_name, names)),
            filename=np.concatenate((before.filename, files)),
            start_line=np.concatenate((before.start_line, np.zeros(len(names), np.int64))),
        )

    def _text(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = len(self.strings)
            self.strings.append(text.encode(errors="replace"))
        return self._texts[text]


def _with_lines(before: Lines, added: Mapping[int, list[tuple[int, int]]]) -> Lines:
    """Return lines with those of locations that had none, by row: the rows of functions, and their lines."""
    counts, rows = np.diff(before.offsets), sorted(added)
    counts[rows] = [len(added[row]) for row in rows]
    offsets = offsets_of(counts)
    is_added = np.zeros(int(offsets[-1]), np.bool_)
    is_added[spans(offsets[rows], counts[rows])] = True
    pairs = np.array([pair for row in rows for pair in added[row]], np.int64)

    def column(old: Ints | Int64s, new: Int64s | int) -> Int64s:
        both = np.empty(len(is_added), np.int64)
        both[is_added], both[~is_added] = new, old
        return both

    return Lines(
        column(before.function, pairs[:, 0]),
        column(before.line, pairs[:, 1]),
        column(before.column, 0),
        offsets,
    )


def _flags(before: Bools, locations: Locations) -> Bools:
    """Return what mappings say of their locations: one all of whose locations have lines has functions."""
    flags, n_lines = before.copy(), np.diff(locations.lines.offsets)
    for mapping in range(len(flags)):
        of_mapping = n_lines[locations.mapping == mapping]
        if len(of_mapping) and of_mapping.all():
            flags[mapping, :3] = True
            flags[mapping, 3] |= bool((of_mapping > 1).any())
    return flags
