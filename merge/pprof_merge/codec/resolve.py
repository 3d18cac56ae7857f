"""Replacing ids and string indexes by row numbers: the last step of `decode`.

The tables hold the rows of all profiles of a batch. An id or string index is that of a row's own profile;
`offsets` (n_profiles + 1) say which rows belong to which profile. Errors count rows within the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from pprof_merge.codec.fields import read_scalars
from pprof_merge.codec.locations import read_locations
from pprof_merge.codec.records import EncodedRecords
from pprof_merge.codec.samples import SampleColumns, read_samples
from pprof_merge.codec.strict_reader import FUNCTION, MAPPING, StrictReader
from pprof_merge.columns.ragged import offsets_of, rows_of_indexes
from pprof_merge.errors import MalformedProfile
from pprof_merge.profile import Bools, Functions, Int64s, Ints, Labels, Lines, Locations, Mappings, Samples


class RowsById:
    """The rows of a table by their ids in the wire format, which are unique within each profile."""

    def __init__(self, ids: Int64s, offsets: Int64s, table: str) -> None:
        """Index the ids of a table. Raises MalformedProfile if an id is 0 or is used twice in a profile."""
        self._offsets = offsets
        # Most profilers count ids from 1, so that a row follows from its id.
        counted = np.arange(1, len(ids) + 1) - _repeated(offsets[:-1], offsets)
        self._is_counted = bool((ids == counted).all())
        self._sorted = [] if self._is_counted else [_sorted(ids[a:b], table) for a, b in _spans(offsets)]

    def rows(self, ids: Ints, offsets: Int64s) -> Ints:
        """Return the row of each id, -1 for unknown ids. `offsets` say which ids belong to which profile."""
        rows = np.empty_like(ids)
        for profile, (begin, end) in enumerate(_spans(offsets)):
            if begin < end:
                rows[begin:end] = self._rows(profile, ids[begin:end])
        return rows

    def _rows(self, profile: int, ids: Ints) -> Ints:
        first, end = int(self._offsets[profile]), int(self._offsets[profile + 1])
        if self._is_counted:
            rows = ids + (first - 1)
            if ids.min() < 1 or ids.max() > end - first:
                rows[(ids < 1) | (ids > end - first)] = -1
            return rows
        ordered, order = self._sorted[profile]
        if not order.size:
            return np.full(len(ids), -1, np.int64)
        found = np.minimum(np.searchsorted(ordered, ids), len(ordered) - 1)
        return np.where(ordered[found] == ids, order[found] + first, -1)


def _sorted(ids: Int64s, table: str) -> tuple[Int64s, Int64s]:
    """Return the ids in ascending order, and the row of each. Raises MalformedProfile."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    if (ids == 0).any():
        raise MalformedProfile("the id is 0; ids begin at 1", f"{table} {np.flatnonzero(ids == 0)[0]}")
    twice = np.flatnonzero(ordered[1:] == ordered[:-1])
    if twice.size:
        place = f"{table} {order[twice[0] + 1]}"
        raise MalformedProfile(f"the id {ordered[twice[0]]} is used twice; ids must be unique", place)
    return ordered, order


def _spans(offsets: Int64s) -> Iterator[tuple[int, int]]:
    return pairwise(offsets.tolist())


def _repeated(values: Int64s, offsets: Int64s) -> Int64s:
    """Return the value (one a profile) of each row's profile."""
    repeated: Int64s = np.repeat(values, np.diff(offsets))
    return repeated


class StringTables:
    """The string tables of a batch, one after another."""

    def __init__(self, strings: list[bytes], offsets: Int64s) -> None:
        self._strings = strings
        self._firsts, self._counts = offsets[:-1], np.diff(offsets)

    def is_empty(self, rows: Ints) -> Bools:
        """Return which of the strings in these rows are empty (n,)."""
        is_empty = np.zeros(len(self._strings), np.bool_)
        is_empty[rows] = True
        for row in np.flatnonzero(is_empty).tolist():
            is_empty[row] = not self._strings[row]
        return is_empty[rows]

    def rows(self, indexes: Int64s, offsets: Int64s, where: str) -> Int64s:
        """Return the rows in the batch's strings of indexes (n,) or (n, k) into the profiles' string tables.

        Raises MalformedProfile if an index is outside its profile's string table.
        """
        column = (-1,) + (1,) * (indexes.ndim - 1)
        counts = _repeated(self._counts, offsets).reshape(column)
        outside = indexes.view(np.uint64) >= counts.view(np.uint64)  # as uint64, negative indexes are large
        if outside.any():
            place = np.argwhere(outside)[0]
            count = counts[place[0]].item()
            raise MalformedProfile(
                f"string index {indexes[tuple(place)]} is out of range: the string table has {count} strings",
                f"{where} {place[0]}",
            )
        return indexes + _repeated(self._firsts, offsets).reshape(column)


def decode_mappings(
    bodies: EncodedRecords, offsets: Int64s, string_tables: StringTables, reader: StrictReader
) -> tuple[Mappings, RowsById]:
    """Return the mappings, and their rows by id. Raises MalformedProfile and LimitExceeded."""
    columns = read_scalars(bodies, MAPPING, "mapping", reader)
    names = string_tables.rows(columns[:, 4:6], offsets, "mapping")
    unsigned = columns.view(np.uint64)
    mappings = Mappings(
        start=unsigned[:, 1],
        limit=unsigned[:, 2],
        offset=unsigned[:, 3],
        filename=names[:, 0],
        build_id=names[:, 1],
        flags=columns[:, 6:10] != 0,
    )
    return mappings, RowsById(columns[:, 0], offsets, "mapping")


def decode_functions(
    bodies: EncodedRecords, offsets: Int64s, string_tables: StringTables, reader: StrictReader
) -> tuple[Functions, RowsById]:
    """Return the functions, and their rows by id. Raises MalformedProfile and LimitExceeded."""
    columns = read_scalars(bodies, FUNCTION, "function", reader)
    names = string_tables.rows(columns[:, 1:4], offsets, "function")
    functions = Functions(names[:, 0], names[:, 1], names[:, 2], columns[:, 4])
    return functions, RowsById(columns[:, 0], offsets, "function")


def decode_locations(
    bodies: EncodedRecords, offsets: Int64s, mappings: RowsById, functions: RowsById, reader: StrictReader
) -> tuple[Locations, RowsById]:
    """Return the locations with their lines, and their rows by id.

    A location with an unknown mapping has none, as in Go. Raises MalformedProfile, for unknown functions
    too, and LimitExceeded.
    """
    columns = read_locations(bodies, reader)
    most_lines = int(np.diff(columns.line_offsets).max(initial=0))
    reader.limits.check("nested_messages", most_lines, "the lines of a location")
    function = functions.rows(columns.lines[:, 0], columns.line_offsets[offsets])
    if function.size and function.min() < 0:
        missing = np.flatnonzero(function < 0)
        location = rows_of_indexes(columns.line_offsets, missing)[0]
        raise MalformedProfile(
            f"it refers to function {columns.lines[missing[0], 0]}, which does not exist",
            f"location {location}",
        )
    locations = Locations(
        mapping=mappings.rows(columns.scalars[:, 1], offsets),
        address=columns.scalars[:, 2].view(np.uint64),
        folded=columns.scalars[:, 4] != 0,
        lines=Lines(function, columns.lines[:, 1], columns.lines[:, 2], columns.line_offsets),
    )
    return locations, RowsById(columns.scalars[:, 0], offsets, "location")


def decode_samples(
    bodies: EncodedRecords,
    offsets: Int64s,
    locations: RowsById,
    string_tables: StringTables,
    reader: StrictReader,
    *,
    n_types: int,
) -> Samples:
    """Return the samples. Raises MalformedProfile and LimitExceeded."""
    columns = read_samples(bodies, n_types, reader)
    counts = np.diff(columns.value_offsets)
    if (counts != n_types).any():
        sample = np.flatnonzero(counts != n_types)[0]
        raise MalformedProfile(
            f"the number of values is {counts[sample]}, but the number of sample types is {n_types}",
            f"sample {sample}",
        )
    depths = np.diff(columns.location_offsets)
    deepest = int(depths.argmax()) if depths.size else 0
    reader.limits.check("stack_depth", int(depths.max(initial=0)), f"sample {deepest}")
    rows = locations.rows(columns.location_ids, columns.location_offsets[offsets])
    if rows.size and rows.min() < 0:
        missing = np.flatnonzero(rows < 0)
        sample = rows_of_indexes(columns.location_offsets, missing)[0]
        raise MalformedProfile(
            f"it refers to location {columns.location_ids[missing[0]]}, which does not exist",
            f"sample {sample}",
        )
    return Samples(
        values=columns.values.reshape(-1, n_types) if n_types else np.zeros((len(bodies), 0), np.int64),
        locations=rows,
        location_offsets=columns.location_offsets,
        labels=_labels(columns, offsets, string_tables),
    )


def _labels(columns: SampleColumns, offsets: Int64s, string_tables: StringTables) -> Labels:
    """Return the labels, without those that have no text, number or unit. Go drops these when it writes."""
    if not len(columns.labels):
        none = np.zeros(0, np.int64)
        return Labels(none, none, none, none, columns.label_offsets)
    key, text, number, unit = columns.labels.T
    owners = columns.label_offsets[offsets]
    is_text = text != 0
    key = string_tables.rows(key, owners, "the key of label")
    text = string_tables.rows(text, owners, "the text of label")
    unit = string_tables.rows(np.where(is_text, 0, unit), owners, "the unit of label")
    # Every empty unit becomes row 0, which is the empty string of the batch's first profile.
    unit = np.where(is_text | string_tables.is_empty(unit), 0, unit)
    is_kept = np.where(is_text, ~string_tables.is_empty(text), (number != 0) | (unit != 0))
    kept_offsets = offsets_of(is_kept)[columns.label_offsets]
    text = np.where(is_text, text, -1)
    number = np.where(is_text, 0, number)
    return Labels(key[is_kept], text[is_kept], number[is_kept], unit[is_kept], kept_offsets)
