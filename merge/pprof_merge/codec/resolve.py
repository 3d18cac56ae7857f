"""Columns with ids and string indexes → tables whose rows refer to rows: the last step of `decode`.

The tables are those of a batch: where a row has the ids and indexes of its own profile, the offsets of
the profiles' rows say which that is. Errors count rows within the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from pprof_merge.codec.fields import read_scalars
from pprof_merge.codec.locations import read_locations
from pprof_merge.codec.records import Bodies
from pprof_merge.codec.samples import SampleColumns, read_samples
from pprof_merge.codec.strict_reader import FUNCTION, MAPPING, StrictReader
from pprof_merge.columns.ragged import offsets_of, rows_at
from pprof_merge.errors import MalformedProfile
from pprof_merge.profile import Bools, Functions, Int64s, Ints, Labels, Lines, Locations, Mappings, Samples


class RowsById:
    """Finds the rows of a table by the ids that the wire format gives them, in each profile its own."""

    def __init__(self, ids: Int64s, offsets: Int64s, table: str) -> None:
        """Raises MalformedProfile where an id is 0 or given twice."""
        self._offsets = offsets
        # Most profilers count ids from 1: then there is nothing to look up.
        self._counted = bool((ids == np.arange(1, len(ids) + 1) - _repeated(offsets[:-1], offsets)).all())
        self._sorted = [] if self._counted else [_sorted(ids[a:b], table) for a, b in _spans(offsets)]

    def rows(self, ids: Ints, offsets: Int64s) -> Ints:
        """The row of each id, -1 where there is none; `offsets` are the profiles' in `ids`."""
        rows = np.empty_like(ids)
        for profile, (begin, end) in enumerate(_spans(offsets)):
            if begin < end:
                rows[begin:end] = self._rows(profile, ids[begin:end])
        return rows

    def _rows(self, profile: int, ids: Ints) -> Ints:
        first, end = int(self._offsets[profile]), int(self._offsets[profile + 1])
        if self._counted:
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
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    if (ids == 0).any():
        raise MalformedProfile("the id is 0", f"{table} {np.flatnonzero(ids == 0)[0]}")
    twice = np.flatnonzero(ordered[1:] == ordered[:-1])
    if twice.size:
        raise MalformedProfile(f"the id {ordered[twice[0]]} is given twice", f"{table} {order[twice[0] + 1]}")
    return ordered, order


def _spans(offsets: Int64s) -> Iterator[tuple[int, int]]:
    return pairwise(offsets.tolist())


def _repeated(values: Int64s, offsets: Int64s) -> Int64s:
    """For each row, the value of its profile."""
    repeated: Int64s = np.repeat(values, np.diff(offsets))
    return repeated


class Texts:
    """The string tables of a batch, one after another."""

    def __init__(self, strings: list[bytes], offsets: Int64s) -> None:
        self._strings = strings
        self._firsts, self._counts = offsets[:-1], np.diff(offsets)

    def are_empty(self, rows: Ints) -> Bools:
        """Which of these strings are empty."""
        is_empty = np.zeros(len(self._strings), np.bool_)
        is_empty[rows] = True
        for row in np.flatnonzero(is_empty).tolist():
            is_empty[row] = not self._strings[row]
        return is_empty[rows]

    def rows(self, indexes: Int64s, offsets: Int64s, where: str) -> Int64s:
        """Each profile's indexes (n,) or (n, k) → rows of the batch's strings.

        Raises MalformedProfile where an index is outside the profile's string table.
        """
        column = (-1,) + (1,) * (indexes.ndim - 1)
        counts = _repeated(self._counts, offsets).reshape(column)
        outside = indexes.view(np.uint64) >= counts.view(np.uint64)  # negative ones are large there
        if outside.any():
            place = np.argwhere(outside)[0]
            count = counts[place[0]].item()
            raise MalformedProfile(
                f"string {indexes[tuple(place)]} is not in the string table of {count}", f"{where} {place[0]}"
            )
        return indexes + _repeated(self._firsts, offsets).reshape(column)


def decode_mappings(
    bodies: Bodies, offsets: Int64s, texts: Texts, reader: StrictReader
) -> tuple[Mappings, RowsById]:
    """The table of mappings. Raises MalformedProfile and LimitExceeded, as do all of these."""
    columns = read_scalars(bodies, MAPPING, "mapping", reader)
    names = texts.rows(columns[:, 4:6], offsets, "mapping")
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
    bodies: Bodies, offsets: Int64s, texts: Texts, reader: StrictReader
) -> tuple[Functions, RowsById]:
    """The table of functions."""
    columns = read_scalars(bodies, FUNCTION, "function", reader)
    names = texts.rows(columns[:, 1:4], offsets, "function")
    functions = Functions(names[:, 0], names[:, 1], names[:, 2], columns[:, 4])
    return functions, RowsById(columns[:, 0], offsets, "function")


def decode_locations(
    bodies: Bodies, offsets: Int64s, mappings: RowsById, functions: RowsById, reader: StrictReader
) -> tuple[Locations, RowsById]:
    """The table of locations with their lines. An unknown mapping is none, an unknown function an error."""
    columns = read_locations(bodies, reader)
    most_lines = int(np.diff(columns.line_offsets).max(initial=0))
    reader.limits.check("nested_messages", most_lines, "the lines of a location")
    function = functions.rows(columns.lines[:, 0], columns.line_offsets[offsets])
    if function.size and function.min() < 0:
        missing = np.flatnonzero(function < 0)
        location = rows_at(columns.line_offsets, missing)[0]
        raise MalformedProfile(
            f"function {columns.lines[missing[0], 0]} is not there", f"location {location}"
        )
    locations = Locations(
        mapping=mappings.rows(columns.scalars[:, 1], offsets),
        address=columns.scalars[:, 2].view(np.uint64),
        folded=columns.scalars[:, 4] != 0,
        lines=Lines(function, columns.lines[:, 1], columns.lines[:, 2], columns.line_offsets),
    )
    return locations, RowsById(columns.scalars[:, 0], offsets, "location")


def decode_samples(
    bodies: Bodies,
    offsets: Int64s,
    locations: RowsById,
    texts: Texts,
    reader: StrictReader,
    *,
    n_types: int,
) -> Samples:
    """The samples, each with as many values as there are sample types."""
    columns = read_samples(bodies, n_types, reader)
    counts = np.diff(columns.value_offsets)
    if (counts != n_types).any():
        sample = np.flatnonzero(counts != n_types)[0]
        raise MalformedProfile(f"{counts[sample]} values for {n_types} sample types", f"sample {sample}")
    depths = np.diff(columns.location_offsets)
    deepest = int(depths.argmax()) if depths.size else 0
    reader.limits.check("stack_depth", int(depths.max(initial=0)), f"sample {deepest}")
    rows = locations.rows(columns.location_ids, columns.location_offsets[offsets])
    if rows.size and rows.min() < 0:
        missing = np.flatnonzero(rows < 0)
        sample = rows_at(columns.location_offsets, missing)[0]
        raise MalformedProfile(
            f"location {columns.location_ids[missing[0]]} is not there", f"sample {sample}"
        )
    return Samples(
        values=columns.values.reshape(-1, n_types) if n_types else np.zeros((len(bodies), 0), np.int64),
        locations=rows,
        location_offsets=columns.location_offsets,
        labels=_labels(columns, offsets, texts),
    )


def _labels(columns: SampleColumns, offsets: Int64s, texts: Texts) -> Labels:
    """Labels, without those that say nothing: no text, number or unit. Go drops them at its next write."""
    if not len(columns.labels):
        none = np.zeros(0, np.int64)
        return Labels(none, none, none, none, columns.label_offsets)
    key, text, number, unit = columns.labels.T
    owners = columns.label_offsets[offsets]
    is_text = text != 0
    key = texts.rows(key, owners, "the key of label")
    text = texts.rows(text, owners, "the text of label")
    unit = texts.rows(np.where(is_text, 0, unit), owners, "the unit of label")
    # Row 0 is the empty string, whichever profile it came from.
    unit = np.where(is_text | texts.are_empty(unit), 0, unit)
    says_something = np.where(is_text, ~texts.are_empty(text), (number != 0) | (unit != 0))
    kept = offsets_of(says_something)[columns.label_offsets]
    text = np.where(is_text, text, -1)
    number = np.where(is_text, 0, number)
    return Labels(
        key[says_something], text[says_something], number[says_something], unit[says_something], kept
    )
