"""Columns with ids and string indexes → tables whose rows refer to rows: the last step of `decode`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pprof_merge.errors import MalformedProfile
from pprof_merge.fields import SampleColumns, read_locations, read_samples, read_scalars
from pprof_merge.profile import Functions, Int64s, Labels, Lines, Locations, Mappings, Samples
from pprof_merge.ragged import rows_at
from pprof_merge.wire import FUNCTION, MAPPING, StrictReader


class RowsById(NamedTuple):
    """Finds the rows of a table by the ids that the wire format gives them."""

    ids: Int64s
    order: Int64s

    @classmethod
    def of(cls, ids: Int64s, table: str) -> RowsById:
        """Raises MalformedProfile where an id is 0 or given twice."""
        order = np.argsort(ids, kind="stable")
        ordered = ids[order]
        if (ids == 0).any():
            raise MalformedProfile("the id is 0", f"{table} {np.flatnonzero(ids == 0)[0]}")
        twice = np.flatnonzero(ordered[1:] == ordered[:-1])
        if twice.size:
            raise MalformedProfile(
                f"the id {ordered[twice[0]]} is given twice", f"{table} {order[twice[0] + 1]}"
            )
        return cls(ordered, order)

    def rows(self, ids: Int64s) -> Int64s:
        """The row of each id; -1 where there is none."""
        if not self.ids.size:
            return np.full(len(ids), -1, np.int64)
        found = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[found] == ids, self.order[found], -1)


def check_texts(indexes: Int64s, n_strings: int, where: str) -> None:
    """Raises MalformedProfile where an index is outside the string table."""
    outside = (indexes < 0) | (indexes >= n_strings)
    if outside.any():
        raise MalformedProfile(
            f"string {indexes[outside][0]} is not in the string table of {n_strings}",
            f"{where} {np.argwhere(outside)[0][0]}",
        )


def decode_mappings(bodies: list[bytes], n_strings: int, reader: StrictReader) -> tuple[Mappings, RowsById]:
    """The table of mappings. Raises MalformedProfile, as do all of these."""
    columns = read_scalars(bodies, MAPPING, "mapping", reader)
    check_texts(columns[:, 4:6], n_strings, "mapping")
    unsigned = columns.view(np.uint64)
    mappings = Mappings(
        start=unsigned[:, 1],
        limit=unsigned[:, 2],
        offset=unsigned[:, 3],
        filename=columns[:, 4],
        build_id=columns[:, 5],
        flags=columns[:, 6:10] != 0,
    )
    return mappings, RowsById.of(columns[:, 0], "mapping")


def decode_functions(bodies: list[bytes], n_strings: int, reader: StrictReader) -> tuple[Functions, RowsById]:
    """The table of functions."""
    columns = read_scalars(bodies, FUNCTION, "function", reader)
    check_texts(columns[:, 1:4], n_strings, "function")
    functions = Functions(columns[:, 1], columns[:, 2], columns[:, 3], columns[:, 4])
    return functions, RowsById.of(columns[:, 0], "function")


def decode_locations(
    bodies: list[bytes], mappings: RowsById, functions: RowsById, reader: StrictReader
) -> tuple[Locations, RowsById]:
    """The table of locations with their lines. An unknown mapping is none, an unknown function an error."""
    columns = read_locations(bodies, reader)
    most_lines = int(np.diff(columns.line_offsets).max(initial=0))
    reader.limits.check("nested_messages", most_lines, "the lines of a location")
    function = functions.rows(columns.lines[:, 0])
    if (function < 0).any():
        missing = np.flatnonzero(function < 0)
        location = rows_at(columns.line_offsets, missing)[0]
        raise MalformedProfile(
            f"function {columns.lines[missing[0], 0]} is not there", f"location {location}"
        )
    locations = Locations(
        mapping=mappings.rows(columns.scalars[:, 1]),
        address=columns.scalars[:, 2].view(np.uint64),
        folded=columns.scalars[:, 4] != 0,
        lines=Lines(function, columns.lines[:, 1], columns.lines[:, 2], columns.line_offsets),
    )
    return locations, RowsById.of(columns.scalars[:, 0], "location")


def decode_samples(
    bodies: list[bytes],
    n_types: int,
    locations: RowsById,
    strings: list[bytes],
    reader: StrictReader,
) -> Samples:
    """The samples, each with as many values as there are sample types."""
    columns = read_samples(bodies, reader)
    counts = np.diff(columns.value_offsets)
    if (counts != n_types).any():
        sample = np.flatnonzero(counts != n_types)[0]
        raise MalformedProfile(f"{counts[sample]} values for {n_types} sample types", f"sample {sample}")
    depths = np.diff(columns.location_offsets)
    deepest = int(depths.argmax()) if depths.size else 0
    reader.limits.check("stack_depth", int(depths.max(initial=0)), f"sample {deepest}")
    reader.limits.check("labels", len(columns.labels))
    rows = locations.rows(columns.location_ids)
    if (rows < 0).any():
        missing = np.flatnonzero(rows < 0)
        sample = rows_at(columns.location_offsets, missing)[0]
        raise MalformedProfile(
            f"location {columns.location_ids[missing[0]]} is not there", f"sample {sample}"
        )
    return Samples(
        values=columns.values.reshape(-1, n_types) if n_types else np.zeros((len(bodies), 0), np.int64),
        locations=rows,
        location_offsets=columns.location_offsets,
        labels=_labels(columns, strings),
    )


def _labels(columns: SampleColumns, strings: list[bytes]) -> Labels:
    """Labels, without those that say nothing: no text, number or unit. Go drops them at its next write."""
    key, text, number, unit = columns.labels.T
    is_text = text != 0
    check_texts(key, len(strings), "the key of label")
    check_texts(text, len(strings), "the text of label")
    check_texts(np.where(is_text, 0, unit), len(strings), "the unit of label")
    is_empty = np.fromiter((not string for string in strings), np.bool_, len(strings))
    unit = np.where(is_text | is_empty[np.where(is_text, 0, unit)], 0, unit)
    says_something = np.where(is_text, ~is_empty[text], (number != 0) | (unit != 0))
    kept = np.concatenate(([0], np.cumsum(says_something)))[columns.label_offsets]
    text = np.where(is_text, text, -1)
    number = np.where(is_text, 0, number)
    return Labels(
        key[says_something], text[says_something], number[says_something], unit[says_something], kept
    )
