"""Reading: the bytes of one profile → columns, in which rows refer to each other by row numbers.

The first pass splits the profile into its records and checks how many there are. Then each table is read in
turn: mappings, functions, locations, samples, so that what a record refers to is known when it is read. The
rules, also for what is refused, are those of google/pprof's `proto.go`, `encode.go` and `CheckValid`.
"""

from __future__ import annotations

import os
from typing import Final, final

from librt.strings import read_i64_le
from librt.vecs import vec
from mypy_extensions import i32, i64

from pprof_merge.codec.wire import (
    LENGTH,
    VARINT,
    count_varints,
    field,
    number_of,
    read_packed,
    read_scalars,
    refuse_type,
    varint,
)
from pprof_merge.columns.vectors import mixed, room, room32, zeros, zeros32
from pprof_merge.errors import MalformedProfile
from pprof_merge.limits import Limits
from pprof_merge.profile.columns import ProfileColumns

# The fields of the message Profile that are records: messages and strings.
SAMPLE_TYPE: Final[i64] = 1
SAMPLE: Final[i64] = 2
MAPPING: Final[i64] = 3
LOCATION: Final[i64] = 4
FUNCTION: Final[i64] = 5
STRING: Final[i64] = 6
# Its other fields. All are numbers but the period type, a message, and the comments, which may be packed.
DROP_FRAMES: Final[i64] = 7
KEEP_FRAMES: Final[i64] = 8
TIME_NANOS: Final[i64] = 9
DURATION_NANOS: Final[i64] = 10
PERIOD_TYPE: Final[i64] = 11
PERIOD: Final[i64] = 12
COMMENT: Final[i64] = 13
DEFAULT_SAMPLE_TYPE: Final[i64] = 14
DOC_URL: Final[i64] = 15

_LIMITS: Final = ("", "sample_types", "samples", "mappings", "locations", "functions", "strings")
_HEADER_TEXTS: Final = (
    (DEFAULT_SAMPLE_TYPE, "default sample type"),
    (DOC_URL, "doc url"),
    (DROP_FRAMES, "drop frames"),
    (KEEP_FRAMES, "keep frames"),
)
# Up to this many packed numbers are read without counting them first.
_SHORT_RUN: Final[i64] = 4096
# The tag of locations that are packed.
_PACKED_FRAMES: Final[i64] = 0x0A
_SEED: Final[i64] = int.from_bytes(os.urandom(8), "little") >> 1


@final
class Ids:
    """The rows of a table by their ids, which are in the first of a row's `width` cells."""

    def __init__(self, name: str, cells: vec[i64], n: i64, width: i64) -> None:
        """Index the ids. Raises MalformedProfile if an id is 0 or is used twice."""
        self.cells: vec[i64] = cells
        self.n: i64 = n
        self.width: i64 = width
        # Most profilers count ids from 1, so that a row follows from its id, and no slots are needed.
        self.mask: i64 = 0
        self.slots: vec[i64] = zeros(0)
        row: i64 = 0
        while row < n and cells[row * width] == row + 1:
            row += 1
        if row < n:
            self.index(name)

    def index(self, name: str) -> None:
        """Give a slot to each row."""
        cells, width = self.cells, self.width
        size: i64 = 2
        while size < 2 * self.n:
            size *= 2
        slots = zeros(size)
        mask: i64 = size - 1
        for row in range(self.n):
            id_: i64 = cells[row * width]
            if id_ == 0:
                raise MalformedProfile("the id is 0; ids begin at 1", f"{name} {row}")
            slot: i64 = mixed(_SEED, id_) >> 29 & mask
            while slots[slot] != 0:
                if cells[(slots[slot] - 1) * width] == id_:
                    raise MalformedProfile(f"the id {id_} is used twice; ids must be unique", f"{name} {row}")
                slot = slot + 1 & mask
            slots[slot] = row + 1
        self.mask, self.slots = mask, slots

    def row_of(self, id_: i64) -> i64:
        """Return the row with an id, -1 if there is none."""
        if self.mask == 0:
            return id_ - 1 if 1 <= id_ <= self.n else i64(-1)
        cells, slots, width, mask = self.cells, self.slots, self.width, self.mask
        slot: i64 = mixed(_SEED, id_) >> 29 & mask
        while slots[slot] != 0:
            if cells[(slots[slot] - 1) * width] == id_:
                return slots[slot] - 1
            slot = slot + 1 & mask
        return -1

    def read_packed(self, data: bytes, at: i64, end: i64, rows: vec[i32], begin: i64) -> i64:
        """Set the cells of `rows` from `begin` on to the rows of packed ids; return the end of these cells.

        Return -1 if one isn't known or has more than three bytes, or if ids need slots.
        """
        n: i64 = self.n
        if self.mask != 0:
            return -1
        last: i64 = i64(len(data)) - 8
        while at < end:
            if at > last:  # a word would end behind the profile, where few senders have samples
                return -1
            word: i64 = read_i64_le(data, at)
            id_: i64 = word & 0x7F
            at += 1
            if word & 0x80 != 0:
                id_ |= word >> 1 & 0x3F80
                at += 1
                if word & 0x8000 != 0:
                    if word & 0x800000 != 0:
                        return -1
                    id_ |= word >> 2 & 0x1FC000
                    at += 1
            if id_ < 1 or id_ > n:
                return -1
            rows[begin] = i32(id_ - 1)
            begin += 1
        return begin if at == end else i64(-1)

    def rows_of(self, some: vec[i64], count: i64, rows: vec[i32], begin: i64) -> i64:
        """Set the cells of `rows` from `begin` on to the rows of some ids; return how many ids are known.

        It stops at the first that isn't.
        """
        n: i64 = self.n
        k: i64 = 0
        if self.mask == 0:
            while k < count:
                id_: i64 = some[k]
                if id_ < 1 or id_ > n:
                    return k
                rows[begin + k] = i32(id_ - 1)
                k += 1
            return k
        while k < count:
            row: i64 = self.row_of(some[k])
            if row < 0:
                return k
            rows[begin + k] = i32(row)
            k += 1
        return k


@final
class Reader(ProfileColumns):
    """The columns of a profile, and its header as numbers.

    - `scalars` (16): the header's numbers, by field; `period_type` (2)
    - `types` (n_types, 2): type and unit, as rows of `strings`
    """

    def __init__(self, data: bytes, limits: Limits) -> None:
        super().__init__()
        self.data: bytes = data
        self.text = data
        self.limits = limits
        self.comments: list[int] = []
        self.scalars: vec[i64] = zeros(16)
        self.period_type: vec[i64] = zeros(2)
        # Two cells a record: its first byte and, in the lowest three bits, its field; and its end.
        # Most profiles have 32 bytes or more for each, if those of the strings count.
        self.records: vec[i64] = zeros(64 + i64(len(data)) // 16)
        self.n_records: i64 = 0
        self.n_irregular: i64 = 0
        self.most_irregular: i64 = limits.irregular_fields
        self.most_lines: i64 = limits.lines
        self.most_frames: i64 = limits.frames
        self.most_labels: i64 = limits.labels
        self.most_nested: i64 = limits.nested_messages
        self.most_values: i64 = limits.sample_types
        self.deepest: i64 = limits.stack_depth
        self.types: vec[i64] = zeros(0)
        self.some: vec[i64] = zeros(0)  # the numbers of one repeated field, with room for `n_types` and more
        self.sample_bytes: i64 = 0
        self.location_bytes: i64 = 0
        self.n_labels_read: i64 = 0

    def read(self) -> None:
        """Read the profile. Raises MalformedProfile and LimitExceeded."""
        if not self.data:
            raise MalformedProfile("the input is empty")
        self.split()
        if self.n_strings == 0 or self.has_text(0):
            raise MalformedProfile("the string table does not begin with the empty string")
        if self.n_samples and not self.n_types:
            raise MalformedProfile("there are samples, but no sample types")
        self.types = self.read_messages("value type", SAMPLE_TYPE, self.n_types, 2)
        self.check_header()
        self.mappings = self.read_messages("mapping", MAPPING, self.n_mappings, 10)
        self.check_texts("mapping", self.mappings, self.n_mappings, 10, 4, 6)
        mappings = Ids("mapping", self.mappings, self.n_mappings, 10)
        self.functions = self.read_messages("function", FUNCTION, self.n_functions, 5)
        self.check_texts("function", self.functions, self.n_functions, 5, 1, 4)
        functions = Ids("function", self.functions, self.n_functions, 5)
        self.read_locations()
        self.resolve_locations(mappings, functions)
        self.read_samples(Ids("location", self.locations, self.n_locations, 5))
        self.records, self.some = zeros(0), zeros(0)

    def has_text(self, row: i64) -> bool:
        """Return whether a string has a byte."""
        return self.spans[2 * row] < self.spans[2 * row + 1]

    def count_start_lines(self) -> i64:
        """Return how many functions have a start line."""
        functions = self.functions
        count: i64 = 0
        for row in range(self.n_functions):
            if functions[5 * row + 4] != 0:
                count += 1
        return count

    def split(self) -> None:
        """Find the records, and read the header's numbers."""
        data = self.data
        n_types: i64 = 0
        n_samples: i64 = 0
        n_mappings: i64 = 0
        n_locations: i64 = 0
        location_bytes: i64 = 0
        n_functions: i64 = 0
        n_strings: i64 = 0
        n_records: i64 = 0
        records, spans = self.records, self.spans
        at: i64 = 0
        end: i64 = i64(len(data))
        most_samples: i64 = self.limits.samples
        most_strings: i64 = self.limits.strings
        longest: i64 = self.limits.name_bytes
        while at < end:
            tag, value, at = field(data, at, end)
            number: i64 = number_of(tag)
            kind: i64 = tag & 7
            if number < SAMPLE_TYPE or number > STRING:
                self.read_header_field(tag, value, at)
            elif kind != LENGTH:
                refuse_type(tag, LENGTH)
            elif number == STRING:
                if n_strings >= most_strings:
                    self.limits.check("strings", n_strings + 1)
                if value > longest:
                    self.limits.check("name_bytes", value, f"string {n_strings}")
                if 2 * n_strings + 2 > len(spans):
                    # For twice as many, if there are as many: most have sixteen bytes or more.
                    spans = room(spans, 2 * n_strings + 2 + min(2 * n_strings, (end - at) // 8))
                spans[2 * n_strings], spans[2 * n_strings + 1] = at, at + value
                n_strings += 1
            else:
                if number == SAMPLE:
                    n_samples += 1
                    self.sample_bytes += value
                    if n_samples > most_samples:
                        self.limits.check("samples", n_samples)
                elif number == LOCATION:
                    n_locations += 1
                    location_bytes += value
                elif number == FUNCTION:
                    n_functions += 1
                elif number == MAPPING:
                    n_mappings += 1
                else:
                    n_types += 1
                if 2 * n_records + 2 > len(records):
                    self.check_counts(n_types, n_mappings, n_locations, n_functions)
                    records = room(records, 2 * n_records + 2)
                records[2 * n_records], records[2 * n_records + 1] = at << 3 | number, at + value
                n_records += 1
            if kind == LENGTH:
                at += value
        self.check_counts(n_types, n_mappings, n_locations, n_functions)
        self.n_types, self.n_samples, self.n_mappings = n_types, n_samples, n_mappings
        self.n_locations, self.n_functions, self.n_strings = n_locations, n_functions, n_strings
        self.records, self.n_records, self.spans = records, n_records, spans
        self.location_bytes = location_bytes

    def check_counts(self, n_types: i64, n_mappings: i64, n_locations: i64, n_functions: i64) -> None:
        """Raise LimitExceeded if there are too many records of a kind; `split` itself counts samples."""
        limits = self.limits
        limits.check("sample_types", n_types)
        limits.check("mappings", n_mappings)
        limits.check("locations", n_locations)
        limits.check("functions", n_functions)

    def read_header_field(self, tag: i64, value: i64, at: i64) -> None:
        """Read a field of the profile that isn't a record; skip it if it is unknown."""
        number: i64 = number_of(tag)
        kind: i64 = tag & 7
        self.count_irregular(1)
        if number == 0 or number > DOC_URL:
            return
        if number == PERIOD_TYPE:
            if kind != LENGTH:
                refuse_type(tag, LENGTH)
            try:
                self.count_irregular(read_scalars(self.data, at, at + value, self.period_type, 0, 2))
            except MalformedProfile as error:
                raise placed(error, "period type") from None
        elif number == COMMENT and kind == LENGTH:
            end: i64 = at + value
            while at < end:
                comment, at = varint(self.data, at, end)
                self.count_irregular(1)
                self.comments.append(comment)
        elif kind != VARINT:
            refuse_type(tag, VARINT)
        elif number == COMMENT:
            self.comments.append(value)
        elif number == TIME_NANOS and self.scalars[TIME_NANOS] != 0:
            raise MalformedProfile("the input is two profiles, one after the other; send each by itself")
        else:
            self.scalars[number] = value

    def count_irregular(self, more: i64) -> None:
        """Count fields that are unknown or of the header; there are few in any profile."""
        self.n_irregular += more
        if self.n_irregular > self.most_irregular:
            self.limits.check("irregular_fields", self.n_irregular)

    def read_messages(self, name: str, number: i64, n: i64, width: i64) -> vec[i64]:
        """Return the records of a field whose own fields are all numbers, (n, width)."""
        cells = zeros(n * width)
        records = self.records
        row: i64 = 0
        try:
            for i in range(self.n_records):
                start: i64 = records[2 * i]
                if start & 7 == number:
                    end: i64 = records[2 * i + 1]
                    unknown: i64 = read_scalars(self.data, start >> 3, end, cells, row * width, width)
                    if unknown != 0:
                        self.count_irregular(unknown)
                    row += 1
        except MalformedProfile as error:
            raise placed(error, f"{name} {row}") from None
        return cells

    def check_header(self) -> None:
        """Raise MalformedProfile if a text of the header isn't in the string table."""
        for i in range(2 * self.n_types):
            self.check_text(self.types[i], f"sample type {i // 2}")
        self.check_text(self.period_type[0], "period type")
        self.check_text(self.period_type[1], "period type")
        for comment in self.comments:
            self.check_text(comment, "comment")
        for number, name in _HEADER_TEXTS:
            self.check_text(self.scalars[number], name)

    def check_text(self, text: i64, where: str) -> None:
        """Raise MalformedProfile if a text isn't in the string table."""
        if text < 0 or text >= self.n_strings:
            what = f"string index {text} is out of range: the string table has {self.n_strings} strings"
            raise MalformedProfile(what, where)

    def check_texts(self, name: str, cells: vec[i64], n: i64, width: i64, first: i64, last: i64) -> None:
        """Raise MalformedProfile if one of the cells `first` to `last` - 1 of a row isn't a string."""
        n_strings: i64 = self.n_strings
        for row in range(n):
            for k in range(row * width + first, row * width + last):
                if cells[k] < 0 or cells[k] >= n_strings:
                    self.check_text(cells[k], f"{name} {row}")

    def read_locations(self) -> None:
        """Read the locations and their lines."""
        records = self.records
        self.locations = zeros(5 * self.n_locations)
        # Most locations have twelve bytes or more besides their lines, and lines have eight.
        lines: i64 = (self.location_bytes - 12 * self.n_locations) // 8
        self.lines = zeros(3 * min(max(lines, i64(0)), self.most_lines))
        row: i64 = 0
        try:
            for i in range(self.n_records):
                start: i64 = records[2 * i]
                if start & 7 == LOCATION:
                    self.read_location(row, start >> 3, records[2 * i + 1])
                    row += 1
        except MalformedProfile as error:
            raise placed(error, f"location {row}") from None

    def read_location(self, row: i64, at: i64, end: i64) -> None:
        """Read one location."""
        data, locations = self.data, self.locations
        first: i64 = 5 * row
        n_lines: i64 = self.n_lines
        unknown: i64 = 0
        while at < end:
            tag, value, at = field(data, at, end)
            if tag == 4 << 3 | LENGTH:
                if n_lines - self.n_lines >= self.most_nested:
                    self.limits.check(
                        "nested_messages", n_lines - self.n_lines + 1, "the lines of a location"
                    )
                if 3 * n_lines + 3 > len(self.lines):
                    if n_lines >= self.most_lines:
                        self.limits.check("lines", n_lines + 1)
                    self.lines = room(self.lines, 3 * n_lines + 3)
                unknown += read_scalars(data, at, at + value, self.lines, 3 * n_lines, 3)
                n_lines += 1
                at += value
            elif 8 <= tag < 48:
                if tag >> 3 == 4:
                    refuse_type(tag, LENGTH)
                if tag & 7 != VARINT:
                    refuse_type(tag, VARINT)
                locations[first + (tag >> 3) - 1] = value
            else:
                unknown += 1
                if tag & 7 == LENGTH:
                    at += value
        if n_lines > self.most_lines:
            self.limits.check("lines", n_lines)
        if unknown != 0:
            self.count_irregular(unknown)
        self.n_lines = locations[first + 3] = n_lines

    def resolve_locations(self, mappings: Ids, functions: Ids) -> None:
        """Replace ids by rows. A location with an unknown mapping has none, as in Go."""
        locations, lines = self.locations, self.lines
        begin: i64 = 0
        for row in range(self.n_locations):
            locations[5 * row + 1] = mappings.row_of(locations[5 * row + 1])
            end: i64 = locations[5 * row + 3]
            for i in range(begin, end):
                id_: i64 = lines[3 * i]
                function: i64 = functions.row_of(id_)
                if function < 0:
                    what = f"it refers to function {id_}, which does not exist"
                    raise MalformedProfile(what, f"location {row}")
                lines[3 * i] = function
            begin = end

    def read_samples(self, ids: Ids) -> None:
        """Read the samples and their labels."""
        records = self.records
        n: i64 = self.n_samples
        self.values = zeros(self.n_types * n)
        # Most frames take two bytes. There is room for as many as the last stack has bytes.
        self.frames = zeros32(min(self.sample_bytes // 2, self.most_frames) + _SHORT_RUN)
        self.frame_ends, self.label_ends = zeros(n + 1), zeros(n + 1)
        self.some = zeros(self.n_types)
        row: i64 = 0
        try:
            for i in range(self.n_records):
                start: i64 = records[2 * i]
                if start & 7 == SAMPLE:
                    self.read_sample(row, start >> 3, records[2 * i + 1], ids)
                    row += 1
        except MalformedProfile as error:
            raise placed(error, f"sample {row}") from None

    def read_sample(self, row: i64, at: i64, end: i64, ids: Ids) -> None:
        """Read one sample: its values to their row, its locations to the end of the frames."""
        data, values = self.data, self.values
        n_types: i64 = self.n_types
        first_value: i64 = row * n_types
        n_values: i64 = 0
        first_frame: i64 = self.n_frames
        n_frames: i64 = 0
        first_label: i64 = self.n_labels
        n_labels: i64 = 0
        unknown: i64 = 0
        while at < end:
            tag, value, at = field(data, at, end)
            kind: i64 = tag & 7
            number: i64 = number_of(tag)
            if tag == _PACKED_FRAMES and value <= min(self.deepest - n_frames, _SHORT_RUN):
                last: i64 = first_frame + n_frames + value
                if last > len(self.frames):
                    self.frames = room32(self.frames, last)
                last = ids.read_packed(data, at, at + value, self.frames, first_frame + n_frames)
                if last >= 0:
                    n_frames = last - first_frame
                    at += value
                    continue
            if number == 1 or number == 2:
                count: i64 = 1
                if kind == LENGTH:
                    count = value
                    if count > _SHORT_RUN:  # before memory is taken for them
                        count = count_varints(data, at, at + value)
                        if number == 1 and count > self.deepest:
                            self.limits.check("stack_depth", count, f"sample {row}")
                        if number == 2 and count > self.most_values:
                            self.limits.check("sample_types", count)
                    if count > len(self.some):
                        self.some = room(self.some, count)
                    count = read_packed(data, at, at + value, self.some, 0)
                    at += value
                elif kind == VARINT:
                    self.some = room(self.some, 1)
                    self.some[0] = value
                else:
                    refuse_type(tag, VARINT)
                some = self.some
                if number == 1:
                    if n_frames + count > self.deepest:
                        self.limits.check("stack_depth", n_frames + count, f"sample {row}")
                    if first_frame + n_frames + count > len(self.frames):
                        self.frames = room32(self.frames, first_frame + n_frames + count)
                    found: i64 = ids.rows_of(some, count, self.frames, first_frame + n_frames)
                    if found < count:
                        raise MalformedProfile(f"it refers to location {some[found]}, which does not exist")
                    n_frames += count
                else:
                    if n_values + count > self.most_values:
                        self.limits.check("sample_types", n_values + count)
                    for k in range(count):
                        if n_values < n_types:
                            values[first_value + n_values] = some[k]
                        n_values += 1
            elif number == 3:
                if kind != LENGTH:
                    refuse_type(tag, LENGTH)
                if n_labels >= self.most_nested:
                    self.limits.check("nested_messages", n_labels + 1)
                if 4 * (first_label + n_labels + 1) > len(self.labels):
                    self.make_room_for_labels(row, first_label + n_labels + 1)
                unknown += read_scalars(data, at, at + value, self.labels, 4 * (first_label + n_labels), 4)
                n_labels += 1
                at += value
            else:
                unknown += 1
                if kind == LENGTH:
                    at += value
        if unknown != 0:
            self.count_irregular(unknown)
        if n_values != n_types:
            what = f"the number of values is {n_values}, but the number of sample types is {n_types}"
            raise MalformedProfile(what)
        self.n_frames = first_frame + n_frames
        if self.n_frames > self.most_frames:
            self.limits.check("frames", self.n_frames)
        self.frame_ends[row + 1] = self.n_frames
        if n_labels != 0:
            self.keep_labels(n_labels)
        self.label_ends[row + 1] = self.n_labels

    def make_room_for_labels(self, row: i64, n: i64) -> None:
        """Make room for n labels, and for as many more as the samples after this row may have."""
        expected: i64 = n * (self.n_samples // (row + 1))
        self.labels = room(self.labels, 4 * max(n, min(expected, self.most_labels)))

    def keep_labels(self, n: i64) -> None:
        """Check n labels, and keep those that have a text, number or unit. Go drops others when it writes."""
        labels, n_strings = self.labels, self.n_strings
        first: i64 = self.n_labels
        kept: i64 = first
        for i in range(first, first + n):
            key: i64 = labels[4 * i]
            text: i64 = labels[4 * i + 1]
            number: i64 = labels[4 * i + 2]
            unit: i64 = labels[4 * i + 3]
            is_text = text != 0
            if is_text:
                unit = number = 0
            if key < 0 or key >= n_strings:
                self.check_text(key, f"the key of label {self.n_labels_read + i - first}")
            if text < 0 or text >= n_strings:
                self.check_text(text, f"the text of label {self.n_labels_read + i - first}")
            if unit < 0 or unit >= n_strings:
                self.check_text(unit, f"the unit of label {self.n_labels_read + i - first}")
            if is_text:
                if not self.has_text(text):
                    continue
            else:
                if not self.has_text(unit):
                    unit = 0
                if number == 0 and unit == 0:
                    continue
            labels[4 * kept] = key
            labels[4 * kept + 1] = text if is_text else i64(-1)
            labels[4 * kept + 2] = number
            labels[4 * kept + 3] = unit
            kept += 1
        self.n_labels = kept
        self.n_labels_read += n
        if self.n_labels_read > self.most_labels:
            self.limits.check("labels", self.n_labels_read)


def placed(error: MalformedProfile, where: str) -> MalformedProfile:
    """Return an error that also says in which record it is."""
    return MalformedProfile(error.what, f"{where}, {error.where}" if error.where else where)
