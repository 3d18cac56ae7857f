"""Assembly: stacks and their sums → the columns of the merged profile.

`Totals` adds up the samples of profiles that were just read, in the order of merging, and leaves out the
stacks whose sums are 0. `Uses` says which mappings and lines a merge has. `assemble` then writes out all that
the stacks refer to. As in google/pprof's `profile.Merge`, everything is in the order in which it first
appears. `Batch` and `IncrementalMerge` both merge by these rules. mypyc compiles this module.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i32, i64

from pprof_merge.columns.vectors import column32_of, column_of, room, room32, wrapped, zeros, zeros32
from pprof_merge.merging.numbering import NumberedColumns, Numbering
from pprof_merge.profile.columns import ProfileColumns

# The depth of stacks that are kept as they are.
WHOLE: Final = 0x7FFFFFFF


@final
class Totals:
    """The distinct stacks of the profiles added so far, in order of first appearance, and their sums.

    `stacks` has n numbers, and `sums` is (n, n_types).
    """

    def __init__(self, n_types: i64) -> None:
        self.n_types: i64 = n_types
        self.stacks: vec[i32] = zeros32(0)
        self.sums: vec[i64] = zeros(0)
        self.n: i64 = 0
        # For each stack 1 + its row in `stacks`, or 0.
        self.row_of: vec[i32] = zeros32(0)

    def add(self, numbered: NumberedColumns, number: i64, columns: list[int], n_stacks: i64) -> None:
        """Add the samples of a profile, given its number in `numbered`.

        `columns` has the column of its values for each type of the sums. There are `n_stacks` stacks.
        """
        n_types: i64 = self.n_types
        first, first_value, last = numbered.span(number)
        self.row_of = row_of = room32(self.row_of, n_stacks)
        self.stacks = stacks = room32(self.stacks, min(n_stacks, self.n + last - first))
        self.sums = sums = room(self.sums, n_types * min(n_stacks, self.n + last - first))
        order = vec[i64](columns)
        numbers, values = numbered.stacks, numbered.values
        for i in range(first, last):
            stack: i64 = i64(numbers[i])
            row: i64 = i64(row_of[stack])
            if row == 0:
                stacks[self.n] = i32(stack)
                self.n += 1
                row = self.n
                row_of[stack] = i32(row)
            cell: i64 = (row - 1) * n_types
            for k in range(n_types):
                sums[cell + k] = wrapped(sums[cell + k] + values[first_value + order[k]])
            first_value += n_types

    def drop_zeros(self) -> None:
        """Leave out the stacks whose sums are all 0. No profiles can be added after that."""
        n_types: i64 = self.n_types
        stacks, sums = self.stacks, self.sums
        kept: i64 = 0
        for i in range(self.n):
            any_value: i64 = 0
            for k in range(n_types):
                any_value |= sums[i * n_types + k]
            if any_value == 0:
                continue
            if kept < i:
                stacks[kept] = stacks[i]
                for k in range(n_types):
                    sums[kept * n_types + k] = sums[i * n_types + k]
            kept += 1
        self.n = kept


@final
class Uses:
    """The mappings and lines of a merge that the tables lack. Profiles are added in any order.

    `main` (7 cells, or none) is the mapping of the main binary: the first one of the first profile that has
    any. `mappings` has 7 cells for each mapping that is used, by its number, with the attributes of its first
    use; the cells are those of `NumberedColumns`. `inner_columns` has, by the number of a location, the
    columns of its lines, for locations whose key lacks some of them. Go keeps the columns that it sees first;
    this keeps the largest, which do not depend on the order.

    Profiles are in the order of their keys, each a `SortKey`, and those of one key in the order of adding.
    """

    def __init__(self) -> None:
        self.main: list[int] = []
        self.main_key: tuple[int, bytes] = (0, b"")
        self.mappings: dict[int, list[int]] = {}
        # The key of the profile that uses each mapping first.
        self.mapping_keys: dict[int, tuple[int, bytes]] = {}
        self.inner_columns: dict[int, list[int]] = {}

    def add(self, key: tuple[int, bytes], tables: Numbering, numbered: NumberedColumns, number: i64) -> None:
        """Add what a profile of `numbered` uses, given its key, and its number there."""
        first, last, first_inner, last_inner = numbered.uses(number)
        for row in range(first, last):
            cells = [int(numbered.mappings[7 * row + k]) for k in range(7)]
            if row == first:
                self.add_main(key, cells)
            else:
                self.add_mapping(key, cells)
        for i in range(first_inner, last_inner):
            self.add_inner_columns(tables, numbered.inner_columns[i])

    def add_main(self, key: tuple[int, bytes], cells: list[int]) -> None:
        """Add the first mapping of a profile, used or not."""
        if not self.main or key < self.main_key:
            self.main, self.main_key = cells, key

    def add_mapping(self, key: tuple[int, bytes], cells: list[int]) -> None:
        """Add a mapping that the samples of a profile use."""
        number = cells[0]
        known = self.mapping_keys.get(number)
        if known is None or key < known:
            self.mappings[number], self.mapping_keys[number] = cells, key

    def add_inner_columns(self, tables: Numbering, number: i64) -> None:
        """Add inner columns, given their number."""
        table = tables.inner_columns
        begin: i64 = table.ends[number]
        columns = [int(table.words[i]) for i in range(begin + 1, table.ends[number + 1])]
        location = int(table.words[begin])
        self.inner_columns[location] = max(columns, self.inner_columns.get(location, columns))


def totals_of(n_types: i64, stacks: bytes, sums: bytes) -> Totals:
    """Return the totals with these stacks (int32) and sums (int64), as the bytes of NumPy's arrays."""
    totals = Totals(n_types)
    totals.stacks, totals.sums = column32_of(stacks), column_of(sums)
    totals.n = i64(len(stacks)) >> 2
    return totals


def assemble(
    tables: Numbering, strings: list[bytes], uses: Uses, totals: Totals, depth: i64
) -> ProfileColumns:
    """Return the merged profile of stacks and their sums, which become its values; `strings` are all.

    Stacks whose sums are all 0 are left out. Of each stack only `depth` locations are kept, from the leaf on.
    """
    totals.drop_zeros()
    merged = ProfileColumns()
    merged.strings = strings
    merged.n_types = totals.n_types
    locations = add_samples(merged, tables, totals, depth)
    functions = add_locations(merged, tables, uses, locations)
    add_functions(merged, tables, functions)
    return merged


def add_samples(merged: ProfileColumns, tables: Numbering, totals: Totals, depth: i64) -> vec[i64]:
    """Set the samples; return the numbers of the locations, in the order of first appearance.

    The sums become the values, since a large merge has no memory for both.
    """
    stacks, n = totals.stacks, totals.n
    words, ends = tables.stacks.words, tables.stacks.ends
    n_frames: i64 = 0
    for i in range(n):
        stack: i64 = i64(stacks[i])
        n_frames += min(depth, ends[stack + 1] - ends[stack] - 1)
    frames, frame_ends, label_ends = zeros32(n_frames), zeros(n + 1), zeros(n + 1)
    row_of, numbers = zeros32(tables.locations.count), zeros(tables.locations.count)
    n_locations: i64 = 0
    n_frames = 0
    for i in range(n):
        first: i64 = ends[i64(stacks[i])]
        last: i64 = min(ends[i64(stacks[i]) + 1], first + 1 + depth)
        label_set: i64 = i64(words[first])
        if label_set != 0:
            add_labels(merged, tables, label_set)
        for at in range(first + 1, last):
            location: i64 = i64(words[at])
            row: i64 = i64(row_of[location])
            if row == 0:
                numbers[n_locations] = location
                n_locations += 1
                row = n_locations
                row_of[location] = i32(row)
            frames[n_frames] = i32(row - 1)
            n_frames += 1
        frame_ends[i + 1] = n_frames
        label_ends[i + 1] = merged.n_labels
    merged.values, merged.frames = totals.sums, frames
    merged.frame_ends, merged.label_ends = frame_ends, label_ends
    merged.n_samples, merged.n_frames, merged.n_locations = n, n_frames, n_locations
    return numbers


def add_labels(merged: ProfileColumns, tables: Numbering, label_set: i64) -> None:
    """Append the labels of a label set."""
    words, ends = tables.label_sets.words, tables.label_sets.ends
    begin: i64 = ends[label_set]
    size: i64 = ends[label_set + 1] - begin
    at: i64 = 4 * merged.n_labels
    merged.labels = labels = room(merged.labels, at + size)
    for i in range(size):
        labels[at + i] = words[begin + i]
    merged.n_labels += size >> 2


def add_locations(merged: ProfileColumns, tables: Numbering, uses: Uses, numbers: vec[i64]) -> vec[i64]:
    """Set locations, lines and mappings; return the numbers of the functions, by first appearance."""
    table = tables.locations
    words, ends = table.words, table.ends
    n_locations: i64 = merged.n_locations
    n_lines: i64 = 0
    for row in range(n_locations):
        n_lines += (ends[numbers[row] + 1] - ends[numbers[row]] - 4) >> 1
    locations, lines = zeros(5 * n_locations), zeros(3 * n_lines)
    function_rows, functions = zeros32(tables.functions.count), zeros(tables.functions.count)
    mapping_rows = zeros(tables.mappings.count)
    n_functions: i64 = 0
    if uses.main:
        add_mapping(merged, uses.main, mapping_rows)
    n_lines = 0
    for row in range(n_locations):
        first: i64 = ends[numbers[row]]
        mapping: i64 = words[first]
        address: i64 = words[first + 1]
        locations[5 * row + 1] = -1
        if mapping >= 0:
            if mapping_rows[mapping] == 0:
                add_mapping(merged, uses.mappings[int(mapping)], mapping_rows)
            mapping = mapping_rows[mapping] - 1
            locations[5 * row + 1] = mapping
            address = wrapped(address + merged.mappings[10 * mapping + 1])
        locations[5 * row + 2] = address
        locations[5 * row + 4] = words[first + 2]
        for at in range(first + 4, ends[numbers[row] + 1], 2):
            function: i64 = i64(function_rows[words[at]])
            if function == 0:
                functions[n_functions] = words[at]
                n_functions += 1
                function = n_functions
                function_rows[words[at]] = i32(function)
            lines[3 * n_lines] = function - 1
            lines[3 * n_lines + 1] = words[at + 1]
            n_lines += 1
        if ends[numbers[row] + 1] > first + 4:
            lines[3 * n_lines - 1] = words[first + 3]
        locations[5 * row + 3] = n_lines
    merged.locations, merged.lines = locations, lines
    merged.n_lines, merged.n_functions = n_lines, n_functions
    if uses.inner_columns:
        add_inner_columns(merged, uses, numbers)
    return functions


def add_mapping(merged: ProfileColumns, cells: list[int], rows: vec[i64]) -> None:
    """Append a mapping, given its 7 cells; set `rows` at its number to 1 + its row."""
    first: i64 = 10 * merged.n_mappings
    merged.mappings = mappings = room(merged.mappings, first + 10)
    for k in range(1, 6):
        mappings[first + k] = cells[k]
    flags: i64 = cells[6]
    for k in range(4):
        mappings[first + 6 + k] = flags >> k & 1
    merged.n_mappings += 1
    rows[cells[0]] = merged.n_mappings


def add_inner_columns(merged: ProfileColumns, uses: Uses, numbers: vec[i64]) -> None:
    """Set the columns of lines that aren't in the keys of their locations."""
    lines, locations = merged.lines, merged.locations
    begin: i64 = 0
    for row in range(merged.n_locations):
        end: i64 = locations[5 * row + 3]
        columns = uses.inner_columns.get(int(numbers[row]))
        if columns is not None:
            for k in range(begin, end):
                lines[3 * k + 2] = columns[k - begin]
        begin = end


def add_functions(merged: ProfileColumns, tables: Numbering, numbers: vec[i64]) -> None:
    """Set the functions with these numbers."""
    words = tables.functions.words
    merged.functions = functions = zeros(5 * merged.n_functions)
    for row in range(merged.n_functions):
        for k in range(4):
            functions[5 * row + 1 + k] = words[4 * numbers[row] + k]
