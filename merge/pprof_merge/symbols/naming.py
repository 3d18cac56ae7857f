"""Name the functions of a profile that has addresses only: a profile and tables of symbols, to a profile.

Addresses are looked up as they are, as `go tool pprof` does: who writes a profile puts a caller's address
within its call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pprof_merge.arrays import Bools, Int64s, Ints
from pprof_merge.columns.ragged import offsets_of, spans, take_rows
from pprof_merge.profile import Profile
from pprof_merge.profile.records import Functions, Lines, Locations
from pprof_merge.symbols.table import SymbolTable


class _Added(NamedTuple):
    """Lines that locations get: the rows of these (n,), ascending, and of each its functions and lines."""

    rows: Int64s
    counts: Int64s
    function: Int64s
    line: Int64s


def with_names(profile: Profile, tables: Mapping[str, SymbolTable]) -> Profile:
    """Return a profile whose locations without lines have those of the tables, which are by build id.

    Calls that are inlined become lines. Functions have the names that linkers know, which views demangle.
    Samples stay as they are, row by row, so that some may now have equal stacks. A profile of which no
    location is in a table is returned as it is.
    """
    functions = _Functions(profile)
    parts = [*_found(profile, tables, functions)]
    if not parts:
        return profile
    rows, counts, function, line = map(np.concatenate, zip(*parts, strict=True))
    order = np.argsort(rows)
    flat, offsets = take_rows(offsets_of(counts), order)
    added = _Added(rows[order], np.diff(offsets), function[flat], line[flat])
    locations = replace(profile.locations, lines=_with_lines(profile.locations.lines, added))
    return profile.replace(
        strings=functions.strings,
        functions=functions.table(),
        locations=locations,
        mappings=replace(profile.mappings, flags=_flags(profile.mappings.flags, locations)),
    )


def bare_locations(profile: Profile) -> Bools:
    """Return whether each location has no lines, (n_locations,)."""
    bare: Bools = np.diff(profile.locations.lines.offsets) == 0
    return bare


def bare_builds(profile: Profile) -> set[str]:
    """Return the build ids of the programs and libraries that have locations without lines."""
    rows = np.unique(profile.locations.mapping[bare_locations(profile)])
    build_ids = profile.mappings.build_id[rows[rows >= 0]].tolist()
    return {profile.strings[row].decode(errors="replace") for row in build_ids} - {""}


def _found(profile: Profile, tables: Mapping[str, SymbolTable], functions: _Functions) -> Iterator[_Added]:
    """Yield the lines of the locations that have none and are in a table, mapping by mapping."""
    mappings, locations = profile.mappings, profile.locations
    of_mapping = [
        tables.get(profile.strings[row].decode(errors="replace")) for row in mappings.build_id.tolist()
    ]
    is_known = np.array([*(table is not None for table in of_mapping), False])  # the last is of no mapping
    bare = np.flatnonzero(bare_locations(profile) & is_known[locations.mapping])
    bare = bare[np.argsort(locations.mapping[bare], kind="stable")]
    for rows in np.split(bare, np.flatnonzero(np.diff(locations.mapping[bare])) + 1):
        if not len(rows):
            continue
        mapping = int(locations.mapping[rows[0]])
        table = of_mapping[mapping]
        assert table is not None  # noqa: S101 - its mapping is known
        start, limit, offset = (
            int(column[mapping]) for column in (mappings.start, mappings.limit, mappings.offset)
        )
        frames = table.look_up(table.addresses(locations.address[rows], start, limit, offset))
        counts = np.diff(frames.offsets)
        if len(frames.function):
            named = counts > 0
            function = functions.rows(table, frames.function)
            yield _Added(rows[named], counts[named], function, frames.line)


class _Functions:
    """The functions of a profile, to which more are added."""

    def __init__(self, profile: Profile) -> None:
        self.strings = [*profile.strings]
        self._functions = profile.functions
        self._texts = dict[bytes, int]()
        # Rows by name and file, both rows of strings.
        self._rows = dict[tuple[int, int], int]()
        self._added = list[tuple[int, int]]()

    def rows(self, table: SymbolTable, functions: Int64s) -> Int64s:
        """Return the rows of functions of a table, which may be among those that the profile has."""
        if not self._texts:
            self._read()
        distinct, inverse = np.unique(functions, return_inverse=True)
        rows = [self._row(self._text(name), self._text(file)) for name, file in table.functions(distinct)]
        return np.array(rows, np.int64)[inverse.reshape(-1)]

    def table(self) -> Functions:
        """Return the table with all of them. Where those that were added start isn't known."""
        names, files = np.array(self._added, np.int64).reshape(-1, 2).T
        before = self._functions
        return Functions(
            name=np.concatenate((before.name, names)),
            system_name=np.concatenate((before.system_name, names)),
            filename=np.concatenate((before.filename, files)),
            start_line=np.concatenate((before.start_line, np.zeros(len(names), np.int64))),
        )

    def _read(self) -> None:
        """Read which texts and functions the profile has."""
        for row, text in enumerate(self.strings):
            self._texts.setdefault(text, row)
        of = self._functions
        columns = (column.tolist() for column in (of.name, of.system_name, of.filename))
        for row, (name, system_name, file) in enumerate(zip(*columns, strict=True)):
            if name == system_name:
                self._rows.setdefault((name, file), row)

    def _row(self, name: int, file: int) -> int:
        if (name, file) not in self._rows:
            self._rows[name, file] = len(self._functions) + len(self._added)
            self._added.append((name, file))
        return self._rows[name, file]

    def _text(self, text: bytes) -> int:
        if text not in self._texts:
            self._texts[text] = len(self.strings)
            self.strings.append(text)
        return self._texts[text]


def _with_lines(before: Lines, added: _Added) -> Lines:
    """Return lines with those of locations that had none."""
    counts = np.diff(before.offsets)
    counts[added.rows] = added.counts
    offsets = offsets_of(counts)
    is_added = np.zeros(int(offsets[-1]), np.bool_)
    is_added[spans(offsets[added.rows], added.counts)] = True

    def column(old: Ints | Int64s, new: Int64s | int) -> Int64s:
        both = np.empty(len(is_added), np.int64)
        both[is_added], both[~is_added] = new, old
        return both

    return Lines(
        column(before.function, added.function),
        column(before.line, added.line),
        column(before.column, 0),
        offsets,
    )


def _flags(before: Bools, locations: Locations) -> Bools:
    """Return what mappings say of their locations: one all of whose locations have lines has functions."""
    flags, n_lines = before.copy(), np.diff(locations.lines.offsets)
    has_mapping = locations.mapping >= 0
    of, n_lines = locations.mapping[has_mapping], n_lines[has_mapping]
    every = np.bincount(of, minlength=len(flags))
    named, inlined = (np.bincount(of[n_lines > least], minlength=len(flags)) for least in (0, 1))
    is_named = (every > 0) & (named == every)
    flags[is_named, :3] = True
    flags[is_named, 3] |= inlined[is_named] > 0
    return flags
