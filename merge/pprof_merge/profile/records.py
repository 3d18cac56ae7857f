"""The tables of a profile as NumPy's arrays, on the memory of its columns.

A ragged column (the locations of a sample, the lines of a location) is one flat array and offsets: row i has
the entries flat[offsets[i]:offsets[i + 1]].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pprof_merge.arrays import Bools, Int64s, Ints, UInt64s
from pprof_merge.columns.ragged import take_rows
from pprof_merge.columns.views import view32, view64
from pprof_merge.profile.columns import ProfileColumns


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """The samples, one a row: `values` is (n_samples, n_types), `locations` is ragged with the leaf first."""

    values: Int64s
    locations: Ints
    location_offsets: Int64s
    labels: Labels

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Int64s) -> Samples:
        """Return the samples in these rows."""
        location_index, location_offsets = take_rows(self.location_offsets, rows)
        label_index, label_offsets = take_rows(self.labels.offsets, rows)
        return Samples(
            values=self.values[rows],
            locations=self.locations[location_index],
            location_offsets=location_offsets,
            labels=Labels(
                key=self.labels.key[label_index],
                text=self.labels.text[label_index],
                number=self.labels.number[label_index],
                unit=self.labels.unit[label_index],
                offsets=label_offsets,
            ),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """The labels of all samples, ragged by `offsets` (n_samples + 1).

    `key`, `text` and `unit` are row numbers of strings. `text` is -1 for a label that is a number. `unit` is
    0, the empty string, for a number without a unit.
    """

    key: Ints
    text: Ints
    number: Int64s
    unit: Ints
    offsets: Int64s

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True, slots=True, eq=False)
class Mappings:
    """The mappings, one a row, the main binary first.

    `flags` is (n_mappings, 4): has_functions, has_filenames, has_line_numbers, has_inline_frames.
    """

    start: UInt64s
    limit: UInt64s
    offset: UInt64s
    filename: Ints
    build_id: Ints
    flags: Bools

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True, eq=False)
class Locations:
    """The locations, one a row. `mapping` is -1 if unknown; `lines` are ragged, the innermost call first."""

    mapping: Ints
    address: UInt64s
    folded: Bools
    lines: Lines

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """The source lines of all locations, ragged by `offsets` (n_locations + 1)."""

    function: Ints
    line: Int64s
    column: Int64s
    offsets: Int64s

    def __len__(self) -> int:
        return len(self.function)


@dataclass(frozen=True, slots=True, eq=False)
class Functions:
    """The functions, one a row; names are row numbers of strings."""

    name: Ints
    system_name: Ints
    filename: Ints
    start_line: Int64s

    def __len__(self) -> int:
        return len(self.name)


class Tables(NamedTuple):
    """All tables of a profile."""

    samples: Samples
    mappings: Mappings
    locations: Locations
    functions: Functions


def records_of(columns: ProfileColumns) -> Tables:
    """Return the tables that are in columns, on the same memory."""
    mappings = view64(columns.mappings, 10 * columns.n_mappings).reshape(-1, 10)
    unsigned = mappings.view(np.uint64)
    functions = view64(columns.functions, 5 * columns.n_functions).reshape(-1, 5)
    locations = view64(columns.locations, 5 * columns.n_locations).reshape(-1, 5)
    lines = view64(columns.lines, 3 * columns.n_lines).reshape(-1, 3)
    labels = view64(columns.labels, 4 * columns.n_labels).reshape(-1, 4)
    n_samples, n_types = columns.n_samples, columns.n_types
    return Tables(
        Samples(
            values=view64(columns.values, n_samples * n_types).reshape(n_samples, n_types),
            locations=view32(columns.frames, columns.n_frames),
            location_offsets=view64(columns.frame_ends, n_samples + 1),
            labels=Labels(
                key=labels[:, 0],
                text=labels[:, 1],
                number=labels[:, 2],
                unit=labels[:, 3],
                offsets=view64(columns.label_ends, n_samples + 1),
            ),
        ),
        Mappings(
            start=unsigned[:, 1],
            limit=unsigned[:, 2],
            offset=unsigned[:, 3],
            filename=mappings[:, 4],
            build_id=mappings[:, 5],
            flags=mappings[:, 6:] != 0,
        ),
        Locations(
            mapping=locations[:, 1],
            address=locations[:, 2].view(np.uint64),
            folded=locations[:, 4] != 0,
            lines=Lines(
                function=lines[:, 0],
                line=lines[:, 1],
                column=lines[:, 2],
                offsets=np.concatenate((np.zeros(1, np.int64), locations[:, 3])),
            ),
        ),
        Functions(functions[:, 1], functions[:, 2], functions[:, 3], functions[:, 4]),
    )


def columns_of(tables: Tables, strings: list[bytes]) -> ProfileColumns:
    """Return tables as columns."""
    columns = ProfileColumns()
    samples, mappings, locations, functions = tables
    lines, labels = locations.lines, samples.labels
    columns.strings = strings
    columns.n_samples, columns.n_types = samples.values.shape
    columns.n_frames, columns.n_labels = len(samples.locations), len(labels)
    columns.n_mappings, columns.n_functions = len(mappings), len(functions)
    columns.n_locations, columns.n_lines = len(locations), len(lines)
    files = mappings.filename, mappings.build_id
    names = functions.name, functions.system_name, functions.filename
    columns.fill(
        np.asarray(samples.locations, np.int32).tobytes(),
        {
            "values": _column(samples.values),
            "frame_ends": _column(samples.location_offsets),
            "label_ends": _column(labels.offsets),
            "labels": _rows(labels.key, labels.text, labels.number, labels.unit),
            "mappings": _rows(
                _ids(mappings), mappings.start, mappings.limit, mappings.offset, *files, *mappings.flags.T
            ),
            "functions": _rows(_ids(functions), *names, functions.start_line),
            "locations": _rows(
                _ids(locations), locations.mapping, locations.address, lines.offsets[1:], locations.folded
            ),
            "lines": _rows(lines.function, lines.line, lines.column),
        },
    )
    return columns


def _ids(table: Mappings | Functions | Locations) -> Int64s:
    """Return the ids of a table's rows."""
    return np.arange(1, len(table) + 1)


def _column(cells: Any) -> bytes:
    """Return the bytes of an array of any shape as a column of 64 bits."""
    return np.asarray(cells, np.int64).tobytes()


def _rows(*arrays: Any) -> bytes:
    """Return the bytes of arrays (n,) as the cells of rows, (n, k); uint64 are taken as they are."""
    cells = np.empty((len(arrays[0]), len(arrays)), np.int64)
    for i, array in enumerate(arrays):
        cells[:, i] = array.view(np.int64) if array.dtype == np.uint64 else array
    return _column(cells)
