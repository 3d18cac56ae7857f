"""Numbering: the columns of profiles → numbers in tables that all profiles share.

Two entries are the same if google/pprof's `profile.Merge` takes them for the same (its `key` methods):

    function    name, system name, file name, start line
    mapping     size rounded up to 4 KiB, offset, and build id or else file name
    location    mapping, address from the mapping's start, folded, function and line of every line,
                and the last line's column
    stack       locations, and labels sorted by key, those with text before those with a number
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import extend, vec
from mypy_extensions import i32, i64

from pprof_merge.columns.strings import Strings
from pprof_merge.columns.tables import IntTable, Table
from pprof_merge.columns.vectors import room, room32, wrapped, zeros, zeros32
from pprof_merge.profile.columns import ProfileColumns

_PAGE: Final[i64] = 0x1000
# Entries are looked up some at a time, so that what is looked up stays in the processor's caches, and a huge
# profile isn't in memory twice.
_BLOCK: Final[i64] = 256
_BLOCK_FRAMES: Final[i64] = 8192


@final
class Numbering:
    """Tables of what profiles refer to. Entries are numbered in order of arrival; numbers never change.

    Rows of the tables, where names and texts are numbers of `strings`:

    - `mappings`: size, offset, build id or file name
    - `functions`: name, system name, file name, start line
    - `locations`: mapping or -1, address, folded, last column; then function and line of every line
    - `label_sets`: key, text or -1 for a number, number and unit of every label; number 0 is the empty set
    - `stacks`: label set; then the locations, the leaf first
    - `inner_columns`: location; then the column of every line. Only for locations with a line that has a
      column and isn't the last, whose column is in the location's key
    """

    def __init__(self) -> None:
        self.strings: Strings = Strings()
        self.mappings: Table = Table()
        self.functions: Table = Table()
        # For each string, 1 + the number of the function that was the last one with this name.
        self.function_of_name: vec[i32] = zeros32(0)
        self.locations: Table = Table()
        self.label_sets: Table = Table()
        self.stacks: IntTable = IntTable()
        self.inner_columns: Table = Table()
        self.label_sets.make_room(1, 0)
        self.label_sets.known(zeros(0), 0, 0)
        # Lists of labels as they were read, and the label set of each: sorting is done once a list.
        self.unsorted: Table = Table()
        self.set_of_unsorted: vec[i64] = zeros(1)
        self.numbered: NumberedColumns = NumberedColumns()

    def add(self, profile: ProfileColumns) -> None:
        """Number what a profile refers to; append the profile to `numbered`."""
        if profile.strings:
            texts = self.strings.add(profile.strings)
        else:
            texts = self.strings.numbers_of(profile.text, profile.spans, profile.n_strings)
        mappings = self.number_mappings(profile, texts)
        functions = self.number_functions(profile, texts)
        locations = self.number_locations(profile, mappings, functions)
        self.add_samples(profile, texts, mappings, locations)

    def number_mappings(self, profile: ProfileColumns, texts: vec[i64]) -> vec[i64]:
        """Return the number of each mapping."""
        mappings, n = profile.mappings, profile.n_mappings
        numbers, words = zeros(n), zeros(3)
        self.mappings.make_room(n, 3 * n)
        for row in range(n):
            first: i64 = 10 * row
            words[0] = wrapped(mappings[first + 2] - mappings[first + 1] + (_PAGE - 1)) & -_PAGE
            words[1] = mappings[first + 3]
            build_id: i64 = texts[mappings[first + 5]]
            words[2] = build_id if build_id != 0 else texts[mappings[first + 4]]
            numbers[row] = self.mappings.known(words, 0, 3)
        return numbers

    def number_functions(self, profile: ProfileColumns, texts: vec[i64]) -> vec[i64]:
        """Return the number of each function."""
        functions, n = profile.functions, profile.n_functions
        some: i64 = min(n, _BLOCK)
        numbers, rows, words, bounds = zeros(n), zeros(some), zeros(4 * some), zeros(some + 1)
        for k in range(some):
            bounds[k + 1] = 4 * k + 4
        self.functions.make_room(n, 4 * n)
        self.function_of_name = last_of = room32(self.function_of_name, self.strings.table.count)
        known = self.functions.words
        unknown: i64 = 0
        for row in range(n):
            name: i64 = texts[functions[5 * row + 1]]
            system_name: i64 = texts[functions[5 * row + 2]]
            file_name: i64 = texts[functions[5 * row + 3]]
            start_line: i64 = functions[5 * row + 4]
            # Most functions are the only one with their name, and are found without a hash.
            guess: i64 = i64(last_of[name]) - 1
            if (
                guess >= 0
                and known[4 * guess + 1] == system_name
                and known[4 * guess + 2] == file_name
                and known[4 * guess + 3] == start_line
            ):
                numbers[row] = guess
                continue
            rows[unknown] = row
            words[4 * unknown] = name
            words[4 * unknown + 1] = system_name
            words[4 * unknown + 2] = file_name
            words[4 * unknown + 3] = start_line
            unknown += 1
            if unknown == some:
                self.look_up_functions(rows, words, bounds, unknown, numbers)
                unknown = 0
        self.look_up_functions(rows, words, bounds, unknown, numbers)
        return numbers

    def look_up_functions(
        self, rows: vec[i64], words: vec[i64], bounds: vec[i64], n: i64, numbers: vec[i64]
    ) -> None:
        """Set the numbers of n functions, given their rows in the profile and their words."""
        found, last_of = zeros(n), self.function_of_name
        self.functions.numbers_of(words, bounds, n, found)
        for k in range(n):
            numbers[rows[k]] = found[k]
            last_of[words[4 * k]] = i32(found[k] + 1)

    def number_locations(
        self, profile: ProfileColumns, mapping_of: vec[i64], function_of: vec[i64]
    ) -> vec[i64]:
        """Return the number of each location; append the inner columns to `numbered`."""
        locations, lines, mappings, n = (
            profile.locations,
            profile.lines,
            profile.mappings,
            profile.n_locations,
        )
        some: i64 = min(n, _BLOCK)
        numbers, words, bounds = zeros(n), zeros(8 * some), zeros(some + 1)
        self.locations.make_room(n, 4 * n + 2 * profile.n_lines)
        size: i64 = 0
        begin: i64 = 0
        columns: i64 = 0
        first: i64 = 0
        for row in range(n):
            mapping: i64 = locations[5 * row + 1]
            end: i64 = locations[5 * row + 3]
            if size + 4 + 2 * (end - begin) > len(words):
                words = room(words, size + 4 + 2 * (end - begin))
            if mapping >= 0:
                words[size] = mapping_of[mapping]
                words[size + 1] = wrapped(locations[5 * row + 2] - mappings[10 * mapping + 1])
            else:
                words[size] = -1
                words[size + 1] = locations[5 * row + 2]
            words[size + 2] = i64(1) if locations[5 * row + 4] != 0 else i64(0)
            words[size + 3] = lines[3 * end - 1] if end > begin else i64(0)
            size += 4
            for k in range(begin, end):
                words[size] = function_of[lines[3 * k]]
                words[size + 1] = lines[3 * k + 1]
                columns |= lines[3 * k + 2]
                size += 2
            begin = end
            bounds[row + 1 - first] = size
            if row + 1 - first == some:
                self.locations.numbers_of(words, bounds, some, numbers, first)
                first = row + 1
                size = 0
        if first < n:
            self.locations.numbers_of(words, bounds, n - first, numbers, first)
        if columns != 0:
            self.add_inner_columns(profile, numbers)
        return numbers

    def add_inner_columns(self, profile: ProfileColumns, location_of: vec[i64]) -> None:
        """Append the inner columns of a profile, at locations that its samples use."""
        locations, lines, words = profile.locations, profile.lines, zeros(1)
        used = used_locations(profile)
        begin: i64 = 0
        for row in range(profile.n_locations):
            end: i64 = locations[5 * row + 3]
            has_inner = False
            for k in range(begin, end - 1):
                if lines[3 * k + 2] != 0:
                    has_inner = True
            if has_inner and used[row] != 0:
                size: i64 = 1 + end - begin
                words = room(words, size)
                words[0] = location_of[row]
                for k in range(begin, end):
                    words[1 + k - begin] = lines[3 * k + 2]
                self.inner_columns.make_room(1, size)
                self.numbered.add_inner_column(self.inner_columns.known(words, 0, size))
            begin = end

    def add_samples(
        self, profile: ProfileColumns, texts: vec[i64], mapping_of: vec[i64], location_of: vec[i64]
    ) -> None:
        """Append the samples that have a value other than 0, and the mappings that they use."""
        n, n_types, values, frames = profile.n_samples, profile.n_types, profile.values, profile.frames
        numbered = self.numbered
        rows, bounds, numbers = (
            zeros32(min(n + profile.n_frames, _BLOCK_FRAMES)),
            zeros(min(n, _BLOCK) + 1),
            zeros(n),
        )
        self.stacks.make_room(n, n + profile.n_frames)
        kept_values = numbered.room_for_values(n * n_types)
        n_values: i64 = numbered.n_values
        # For each location the mapping whose use isn't known yet, or -1; and how many mappings these are.
        unused, to_use = zeros(profile.n_locations), zeros(profile.n_mappings)
        n_unused: i64 = 0
        for row in range(profile.n_locations):
            mapping: i64 = profile.locations[5 * row + 1]
            unused[row] = mapping
            if mapping >= 0 and to_use[mapping] == 0:
                to_use[mapping] = 1
                n_unused += 1
        if profile.n_mappings > 0:
            numbered.add_mapping(profile.mappings, 0, mapping_of[0], texts)
        first_used: i64 = numbered.n_mappings
        found: i64 = 0  # stacks that have their numbers
        some: i64 = 0  # stacks in `rows`
        size: i64 = 0
        begin: i64 = 0
        first_label: i64 = 0
        for row in range(n):
            end: i64 = profile.frame_ends[row + 1]
            last_label: i64 = profile.label_ends[row + 1]
            any_value: i64 = 0
            for k in range(row * n_types, row * n_types + n_types):
                any_value |= values[k]
            if any_value != 0:
                if some == _BLOCK or size + 1 + end - begin > len(rows):
                    self.stacks.numbers_of(rows, bounds, some, numbers, found)
                    found += some
                    some = size = 0
                    rows = room32(rows, 1 + end - begin)
                for k in range(row * n_types, row * n_types + n_types):
                    kept_values[n_values] = values[k]
                    n_values += 1
                rows[size] = 0
                if last_label > first_label:
                    rows[size] = i32(self.label_set_of(profile, texts, first_label, last_label))
                size += 1
                for k in range(begin, end):
                    rows[size] = i32(location_of[i64(frames[k])])
                    size += 1
                if n_unused > 0:
                    for k in range(begin, end):
                        mapping = unused[i64(frames[k])]
                        if mapping >= 0 and to_use[mapping] != 0:
                            to_use[mapping] = 0
                            n_unused -= 1
                            if not numbered.has_mapping(first_used, mapping_of[mapping]):
                                numbered.add_mapping(profile.mappings, mapping, mapping_of[mapping], texts)
                some += 1
                bounds[some] = size
            begin, first_label = end, last_label
        self.stacks.numbers_of(rows, bounds, some, numbers, found)
        numbered.n_values = n_values
        numbered.end_profile(numbers, found + some)

    def label_set_of(self, profile: ProfileColumns, texts: vec[i64], begin: i64, end: i64) -> i64:
        """Return the number of the set of the labels from `begin` to `end` - 1 of a profile."""
        size: i64 = 4 * (end - begin)
        words, labels = zeros(size), profile.labels
        at: i64 = 0
        for i in range(begin, end):
            words[at] = texts[labels[4 * i]]
            words[at + 1] = i64(-1) if labels[4 * i + 1] < 0 else texts[labels[4 * i + 1]]
            words[at + 2] = labels[4 * i + 2]
            words[at + 3] = texts[labels[4 * i + 3]]
            at += 4
        self.unsorted.make_room(1, size)
        n_lists: i64 = self.unsorted.count
        number: i64 = self.unsorted.known(words, 0, size)
        if number == n_lists:
            self.sort_labels(profile, labels, words, begin, end)
            self.label_sets.make_room(1, size)
            self.set_of_unsorted = room(self.set_of_unsorted, number + 1)
            self.set_of_unsorted[number] = self.label_sets.known(words, 0, size)
        return self.set_of_unsorted[number]

    def sort_labels(
        self, profile: ProfileColumns, labels: vec[i64], words: vec[i64], begin: i64, end: i64
    ) -> None:
        """Bring the words of labels into Go's order: those with text by key, then those with a number."""
        order: list[tuple[bool, bytes, int]] = []
        for i in range(begin, end):
            order.append((labels[4 * i + 1] < 0, profile.string(labels[4 * i]), int(i - begin)))
        order.sort()
        unsorted = words[:]
        at: i64 = 0
        for _, _, row in order:
            first: i64 = 4 * i64(row)
            for k in range(4):
                words[at + k] = unsorted[first + k]
            at += 4

    def absorb(self, other: Numbering) -> Renumbering:
        """Add all entries of other tables; return the number that each of them has here."""
        strings = other.strings.table
        texts = self.take(self.strings.table, strings, strings.words[: strings.ends[strings.count]])
        renumbered = Renumbering(texts)
        # In each row the words from the first on are numbers of what the map has, every `step` words.
        words = other.mappings.words[: other.mappings.ends[other.mappings.count]]
        for i in range(2, i64(len(words)), 3):
            words[i] = texts[words[i]]
        renumbered.mappings = self.take(self.mappings, other.mappings, words)
        words = other.functions.words[: other.functions.ends[other.functions.count]]
        for i in range(i64(len(words))):
            if i & 3 != 3:
                words[i] = texts[words[i]]
        renumbered.functions = self.take(self.functions, other.functions, words)
        self.absorb_locations(other, renumbered)
        self.absorb_stacks(other, renumbered)
        return renumbered

    def absorb_locations(self, other: Numbering, renumbered: Renumbering) -> None:
        """Add the locations of other tables, and their inner columns."""
        table = other.locations
        words, ends = table.words[: table.ends[table.count]], table.ends
        for row in range(table.count):
            begin: i64 = ends[row]
            if words[begin] >= 0:
                words[begin] = renumbered.mappings[words[begin]]
            for i in range(begin + 4, ends[row + 1], 2):
                words[i] = renumbered.functions[words[i]]
        renumbered.locations = self.take(self.locations, table, words)
        table = other.inner_columns
        words, ends = table.words[: table.ends[table.count]], table.ends
        for row in range(table.count):
            words[ends[row]] = renumbered.locations[words[ends[row]]]
        renumbered.inner_columns = self.take(self.inner_columns, table, words)

    def absorb_stacks(self, other: Numbering, renumbered: Renumbering) -> None:
        """Add the label sets and stacks of other tables."""
        table = other.label_sets
        words = table.words[: table.ends[table.count]]
        for i in range(i64(0), i64(len(words)), 4):
            words[i] = renumbered.texts[words[i]]
            if words[i + 1] >= 0:
                words[i + 1] = renumbered.texts[words[i + 1]]
            words[i + 3] = renumbered.texts[words[i + 3]]
        label_sets = self.take(self.label_sets, table, words)
        stacks = other.stacks
        rows, ends = stacks.words[: stacks.ends[stacks.count]], stacks.ends
        for row in range(stacks.count):
            begin: i64 = ends[row]
            rows[begin] = i32(label_sets[i64(rows[begin])])
            for i in range(begin + 1, ends[row + 1]):
                rows[i] = i32(renumbered.locations[i64(rows[i])])
        renumbered.stacks = zeros(stacks.count)
        self.stacks.make_room(stacks.count, ends[stacks.count])
        self.stacks.numbers_of(rows, ends, stacks.count, renumbered.stacks)

    def take(self, table: Table, other: Table, words: vec[i64]) -> vec[i64]:
        """Add the rows of another table, whose words are given, to a table; return their numbers."""
        numbers = zeros(other.count)
        table.make_room(other.count, i64(len(words)))
        table.numbers_of(words, other.ends, other.count, numbers)
        return numbers


def used_locations(profile: ProfileColumns) -> vec[i64]:
    """Return 1 for each location in a sample that has a value other than 0, and 0 for the others."""
    used, frames, values, n_types = (
        zeros(profile.n_locations),
        profile.frames,
        profile.values,
        profile.n_types,
    )
    begin: i64 = 0
    for row in range(profile.n_samples):
        end: i64 = profile.frame_ends[row + 1]
        any_value: i64 = 0
        for k in range(row * n_types, row * n_types + n_types):
            any_value |= values[k]
        if any_value != 0:
            for k in range(begin, end):
                used[i64(frames[k])] = 1
        begin = end
    return used


@final
class Renumbering:
    """For each entry of tables that were absorbed, its number in the tables that absorbed them."""

    def __init__(self, texts: vec[i64]) -> None:
        self.texts: vec[i64] = texts
        self.mappings: vec[i64] = zeros(0)
        self.functions: vec[i64] = zeros(0)
        self.locations: vec[i64] = zeros(0)
        self.stacks: vec[i64] = zeros(0)
        self.inner_columns: vec[i64] = zeros(0)


@final
class NumberedColumns:
    """Numbered profiles: stacks and values, mappings (7 cells), inner columns.

    The counts have an entry for each profile. There is room for `n_stacks` stacks and `n_values` values at
    first.
    """

    def __init__(self, n_stacks: i64 = 0, n_values: i64 = 0) -> None:
        self.stacks: vec[i32] = zeros32(n_stacks)
        self.values: vec[i64] = zeros(n_values)
        self.mappings: vec[i64] = zeros(0)
        self.inner_columns: vec[i64] = zeros(0)
        self.n_stacks: i64 = 0
        self.n_values: i64 = 0
        self.n_mappings: i64 = 0
        self.n_inner_columns: i64 = 0
        self.ends: list[tuple[int, int, int, int]] = [(0, 0, 0, 0)]

    def __len__(self) -> int:
        return len(self.ends) - 1

    def span(self, profile: i64) -> tuple[i64, i64, i64]:
        """Return the first stack and the first value of a profile, and the end of its stacks."""
        stacks, values, _, _ = self.ends[profile]
        return stacks, values, self.ends[profile + 1][0]

    def uses(self, profile: i64) -> tuple[i64, i64, i64, i64]:
        """Return where the mappings of a profile begin and end, and where its inner columns do."""
        _, _, first, first_inner = self.ends[profile]
        _, _, last, last_inner = self.ends[profile + 1]
        return first, last, first_inner, last_inner

    def room_for_values(self, more: i64) -> vec[i64]:
        """Return the column of values with room for `more` values."""
        self.values = room(self.values, self.n_values + more)
        return self.values

    def add_mapping(self, mappings: vec[i64], row: i64, number: i64, texts: vec[i64]) -> None:
        """Append a mapping: number, start, limit, offset, file name, build id, and flags as bits."""
        out: i64 = 7 * self.n_mappings
        self.mappings = cells = room(self.mappings, out + 7)
        first: i64 = 10 * row
        cells[out] = number
        for k in range(1, 4):
            cells[out + k] = mappings[first + k]
        cells[out + 4] = texts[mappings[first + 4]]
        cells[out + 5] = texts[mappings[first + 5]]
        flags: i64 = 0
        for k in range(4):
            if mappings[first + 6 + k] != 0:
                flags |= i64(1) << k
        cells[out + 6] = flags
        self.n_mappings += 1

    def has_mapping(self, first: i64, number: i64) -> bool:
        """Return whether a mapping with this number is among those from `first` on."""
        for row in range(first, self.n_mappings):
            if self.mappings[7 * row] == number:
                return True
        return False

    def add_inner_column(self, number: i64) -> None:
        """Append the number of inner columns."""
        self.inner_columns = room(self.inner_columns, self.n_inner_columns + 1)
        self.inner_columns[self.n_inner_columns] = number
        self.n_inner_columns += 1

    def end_profile(self, numbers: vec[i64], n: i64) -> None:
        """Append n stacks, which are the last thing that is added of a profile."""
        first: i64 = self.n_stacks
        self.stacks = stacks = room32(self.stacks, first + n)
        for i in range(n):
            stacks[first + i] = i32(numbers[i])
        self.n_stacks = first + n
        self.ends.append(
            (int(self.n_stacks), int(self.n_values), int(self.n_mappings), int(self.n_inner_columns))
        )

    def absorb(self, other: NumberedColumns, numbers: Renumbering) -> None:
        """Append the profiles of other tables, which were absorbed with these numbers."""
        first: i64 = self.n_stacks
        self.stacks = stacks = room32(self.stacks, first + other.n_stacks)
        for i in range(other.n_stacks):
            stacks[first + i] = i32(numbers.stacks[i64(other.stacks[i])])
        self.values = extend(self.values[: self.n_values], other.values[: other.n_values])
        self.mappings = cells = room(self.mappings, 7 * (self.n_mappings + other.n_mappings))
        for row in range(other.n_mappings):
            out: i64 = 7 * (self.n_mappings + row)
            for k in range(7):
                cells[out + k] = other.mappings[7 * row + k]
            cells[out] = numbers.mappings[cells[out]]
            cells[out + 4] = numbers.texts[cells[out + 4]]
            cells[out + 5] = numbers.texts[cells[out + 5]]
        before = (int(first), int(self.n_values), int(self.n_mappings), int(self.n_inner_columns))
        for i in range(other.n_inner_columns):
            self.add_inner_column(numbers.inner_columns[other.inner_columns[i]])
        self.n_stacks += other.n_stacks
        self.n_values += other.n_values
        self.n_mappings += other.n_mappings
        for end in other.ends[1:]:
            self.ends.append((before[0] + end[0], before[1] + end[1], before[2] + end[2], before[3] + end[3]))
