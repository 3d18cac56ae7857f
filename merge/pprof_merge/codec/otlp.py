"""OTLP: the profiles of an export, in the wire of 1.8 to 1.11 → the records of pprof.

The profiles of an export share a dictionary, whose entries aren't read before a profile refers to them; the
entry 0 of a table stands for "not set", but some senders have a location there. A profile is read straight
from the wire and written as it is read: its tables are in the order of first use, and their ids count from 1.
mypyc compiles this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64, u8

from pprof_merge.codec.otlp_tables import (
    ATTRIBUTE,
    FUNCTION,
    LINK,
    LOCATION,
    MAPPING,
    SAMPLES,
    STACK,
    STRING,
    TIMES_READ,
    TIMESTAMPS,
    DictionaryTables,
)
from pprof_merge.codec.wire import (
    FIXED64,
    LENGTH,
    VARINT,
    count_varints,
    field,
    number_of,
    put,
    read_packed,
    read_scalars,
    refuse,
    size_of,
    varint,
)
from pprof_merge.codec.writer import StringTable, Writer, fields_size, put_fields
from pprof_merge.columns.tables import Table
from pprof_merge.columns.vectors import room, wrapped, zeros
from pprof_merge.errors import MalformedProfile
from pprof_merge.limits import Limits

_MOST: Final[i64] = 0x7FFFFFFFFFFFFFFF
_ID_BITS: Final[i64] = 0xFFFFFFFF
# More weight of a sample makes no difference to what is asked of its locations; sums stay within 63 bits.
_HEAVIEST: Final[i64] = 0xFFFFFFFFFF
# How many bytes of the dictionary may be read for each frame: what a stack has is read for each sample.
_READ_FOR_FRAME: Final[i64] = 16
# The labels that a sample gets of its link, by the fields of a link: the key, and how many bytes an id has.
_OF_LINK: Final = ((b"trace_id", 16), (b"span_id", 8))
_N_OF_LINK: Final[i64] = 2
# Pieces of output are as long as they get.
_WHOLE: Final[i64] = 1 << 40

# What is said of attributes and mappings, by index: the key, text, number and unit of an attribute that
# becomes a label; 1 if it is another one than pprof.location.is_folded, 2 if that is true, 3 if not; and the
# build id of a mapping with its four flags, each 0, 1, or -1 if its locations tell.
LabelOf = Callable[[int], tuple[bytes, bytes, int, bytes] | None]
FoldedOf = Callable[[int], int]
MappingOf = Callable[[int], tuple[bytes, int, int, int, int]]
# A line of a location that is known better than the request says it: the name, the file and the start line of
# its function, 0 if that isn't known, and the line, 0 for none.
KnownLine = tuple[bytes, bytes, int, int]


@final
class Conversion:
    """Writes the profiles of an export as pprof, one after another: `read_samples`, then `write`.

    All of them together have the room of one profile, which `limits` bound. Methods raise MalformedProfile
    and LimitExceeded, and `write` also UnicodeDecodeError; then the profile is none.
    """

    def __init__(
        self,
        tables: DictionaryTables,
        limits: Limits,
        label_of: LabelOf,
        folded_of: FoldedOf,
        mapping_of: MappingOf,
    ) -> None:
        self.tables: DictionaryTables = tables
        self.data: bytes = tables.data
        self.limits: Limits = limits
        self.label_of: LabelOf = label_of
        self.folded_of: FoldedOf = folded_of
        self.mapping_of: MappingOf = mapping_of
        # What is taken of the room.
        self.n_samples: i64 = 0
        self.n_labels: i64 = 0
        self.n_frames: i64 = 0
        self.n_lines: i64 = 0
        self.n_bytes: i64 = 0
        self.most_samples: i64 = limits.samples
        self.most_labels: i64 = limits.labels
        self.most_frames: i64 = limits.frames
        self.most_lines: i64 = limits.lines
        self.most_bytes: i64 = limits.inflated_bytes
        self.most_nested: i64 = limits.nested_messages
        # For each attribute 0 until something is said of it; 1 if it becomes no label, 2 if it does; the same
        # of what `folded_of` says.
        n_attributes: i64 = tables.count(ATTRIBUTE)
        self.kept: vec[u8] = vec[u8]([u8(0)] * n_attributes)
        self.folded: vec[u8] = vec[u8]([u8(0)] * n_attributes)
        self.label_texts: dict[int, tuple[bytes, bytes, int, bytes]] = {}
        # Labels are numbered as the attributes are, and after these come two for each link. For each there is
        # the profile that used it last, and its cells there.
        self.first_of_links: i64 = n_attributes
        n_labels: i64 = n_attributes + _N_OF_LINK * tables.count(LINK)
        self.label_uses: vec[i64] = zeros(n_labels)
        self.label_cells: vec[i64] = zeros(4 * n_labels)
        # For each entry of all tables, the number of the profile that uses it, and below it 32 bits with its
        # id there; so that nothing has to be set back.
        self.ids: vec[i64] = zeros(i64(len(tables.spans)) >> 1)
        self.profile: i64 = 0
        # Of the profile that is read: its stacks with labels, and their sums.
        self.rows: Table = Table()
        self.n_rows: i64 = 0
        self.sums: vec[i64] = zeros(64)
        # Of the sample that is read: its stack and its labels, those of its link at the end; and what it adds
        # up to.
        self.key: vec[i64] = zeros(self.most_nested + 2 + _N_OF_LINK)
        self.n_key: i64 = 0
        self.sum: i64 = 0
        self.n_values: i64 = 0
        self.n_attributes: i64 = 0
        # Whether the first location is one: 1 or 0, or -1 as long as nobody asked.
        self.first_location: i64 = -1
        # Of the profile that is written.
        self.n_locations: i64 = 0
        self.n_mappings: i64 = 0
        self.n_functions: i64 = 0
        self.known_ids: dict[KnownLine, int] = {}
        self.known: dict[int, list[KnownLine]] = {}
        self.table: StringTable = StringTable([])
        # The file of each function by its id; ten cells for each mapping, as in pprof, and the flags it told.
        self.filenames: vec[i64] = zeros(64)
        self.mappings: vec[i64] = zeros(0)
        self.told: vec[i64] = zeros(0)
        self.samples: Writer = Writer(_WHOLE)
        self.locations: Writer = Writer(_WHOLE)
        self.functions: Writer = Writer(_WHOLE)
        # Cells for the frames and labels of a sample, for the lines of a location, and for other fields.
        self.frames: vec[i64] = zeros(64)
        self.labels: vec[i64] = zeros(64)
        self.some: vec[i64] = zeros(64)
        self.cells: vec[i64] = zeros(5)
        # How much each location weighs, plus 1, and how much as a caller; and which locations do.
        self.hefts: vec[i64] = zeros(0)
        self.calls: vec[i64] = zeros(0)
        self.weighed: list[int] = []

    def read_samples(self, at: i64, end: i64, is_before_1_10: bool) -> None:
        """Begin a profile, which is at these bytes: add up the values of each stack and set of labels."""
        data = self.data
        self.rows, self.n_rows = Table(), 0
        attributes: i64 = 3 if is_before_1_10 else 2
        values: i64 = 2 if is_before_1_10 else 4
        link: i64 = 4 if is_before_1_10 else 3
        while at < end:
            tag, value, at = field(data, at, end)
            if tag & 7 == LENGTH:
                if number_of(tag) == SAMPLES:
                    self.read_sample(at, at + value, attributes, values, link)
                at += value
        ends, words = self.rows.ends, self.rows.words
        for row in range(self.n_rows):
            n_frames: i64 = self.count_frames(words[ends[row]])
            self.n_frames += n_frames
            self.tables.most_read += _READ_FOR_FRAME * n_frames
            if self.n_frames > self.most_frames:
                self.limits.check("frames", self.n_frames)

    def read_sample(self, at: i64, end: i64, attributes: i64, values: i64, link: i64) -> None:
        """Add a sample to the sums. Its attributes, values and link are in the fields of these numbers."""
        data = self.data
        n_times: i64 = 0
        linked: i64 = 0
        self.key[0] = self.sum = self.n_values = self.n_attributes = 0
        self.n_key = 1
        while at < end:
            tag, value, at = field(data, at, end)
            number: i64 = number_of(tag)
            kind: i64 = tag & 7
            stop: i64 = at + value if kind == LENGTH else at
            if number == 1 and kind == VARINT:
                self.key[0] = value
            elif number == TIMESTAMPS:
                if kind == LENGTH and value & 7:
                    refuse("timestamps don't have eight bytes each", at)
                if kind == LENGTH or kind == FIXED64:
                    n_times += value >> 3 if kind == LENGTH else i64(1)
            elif number == values:
                if kind == VARINT:
                    self.add_value(value)
                while at < stop:
                    value, at = varint(data, at, stop)
                    self.add_value(value)
            elif number == attributes:
                if kind == VARINT:
                    self.add_attribute(value)
                while at < stop:
                    value, at = varint(data, at, stop)
                    self.add_attribute(value)
            elif number == link and kind == VARINT:
                linked = value
            at = stop
        if linked != 0:
            self.add_link(linked)
        if self.n_values == 0:
            if n_times == 0:
                raise MalformedProfile("a sample has neither values nor timestamps")
            self.sum = n_times
        elif n_times != 0 and self.n_values != n_times:
            raise MalformedProfile(f"a sample has {self.n_values} values and {n_times} timestamps")
        self.n_samples += 1
        self.n_labels += self.n_key - 1
        if self.n_samples > self.most_samples:
            self.limits.check("samples", self.n_samples)
        if self.n_labels > self.most_labels:
            self.limits.check("labels", self.n_labels)
        self.rows.make_room(1, self.n_key)
        row: i64 = self.rows.known(self.key, 0, self.n_key)
        if row == self.n_rows:
            self.n_rows += 1
            self.sums = room(self.sums, self.n_rows)
            self.sums[row] = self.sum
        else:
            self.sums[row] = summed(self.sums[row], self.sum)

    def add_value(self, value: i64) -> None:
        """Add a value of the sample that is read."""
        self.n_values += 1
        self.sum = summed(self.sum, value)

    def add_attribute(self, attribute: i64) -> None:
        """Insert an attribute of the sample that is read into its sorted key, if it becomes a label."""
        self.n_attributes += 1
        if self.n_attributes > self.most_nested:
            self.limits.check("nested_messages", self.n_attributes, "the attributes of a sample")
        if attribute == 0 or not self.is_kept(attribute):
            return
        key = self.key
        k: i64 = self.n_key
        self.n_key += 1
        while k > 1 and key[k - 1] > attribute:
            key[k] = key[k - 1]
            k -= 1
        key[k] = attribute

    def add_link(self, link: i64) -> None:
        """Add the labels of a link to the key of the sample that is read, those whose ids it has."""
        self.tables.entry(LINK, link)
        first: i64 = self.first_of_links + _N_OF_LINK * link
        if int(first) not in self.label_texts:
            self.read_link(link, first)
        for k in range(_N_OF_LINK):
            if self.label_texts[int(first + k)][1]:
                self.key[self.n_key] = first + k
                self.n_key += 1

    def read_link(self, link: i64, first: i64) -> None:
        """Set the texts of a link's labels: the ids in hex, each empty if it is not of its length, or 0."""
        data = self.data
        at, end = self.tables.read(LINK, link)
        for k in range(_N_OF_LINK):
            self.label_texts[int(first + k)] = _OF_LINK[k][0], b"", 0, b""
        while at < end:
            tag, value, at = field(data, at, end)
            if tag & 7 != LENGTH:
                continue
            number: i64 = number_of(tag)
            if 1 <= number <= _N_OF_LINK:
                key, size = _OF_LINK[number - 1]
                id_ = data[at : at + value]
                text = id_.hex().encode() if len(id_) == size and any(id_) else b""
                self.label_texts[int(first + number - 1)] = key, text, 0, b""
            at += value

    def is_kept(self, attribute: i64) -> bool:
        """Return whether an attribute becomes a label."""
        self.tables.entry(ATTRIBUTE, attribute)
        if self.kept[attribute] == 0:
            label = self.label_of(int(attribute))
            if label is not None:
                self.label_texts[int(attribute)] = label
            self.kept[attribute] = u8(1 if label is None else 2)
        return self.kept[attribute] == 2

    def count_frames(self, stack: i64) -> i64:
        """Return how many locations a stack has."""
        if stack == 0:
            return 0
        at, end = self.tables.read(STACK, stack)
        n: i64 = 0
        while at < end:
            tag, value, at = field(self.data, at, end)
            if number_of(tag) == 1:
                n += count_varints(self.data, at, at + value) if tag & 7 == LENGTH else i64(1)
            if tag & 7 == LENGTH:
                at += value
        return n

    def read_frames(self, stack: i64) -> i64:
        """Set `frames` to the locations of a stack, which has few enough; return how many are set."""
        if stack == 0:
            return 0
        tables = self.tables
        at, end = tables.read(STACK, stack)
        n: i64 = 0
        while at < end:
            tag, value, at = field(self.data, at, end)
            kind: i64 = tag & 7
            if number_of(tag) == 1 and (kind == LENGTH or kind == VARINT):
                more: i64 = count_varints(self.data, at, at + value) if kind == LENGTH else i64(1)
                self.frames = room(self.frames, n + more)
                if kind == LENGTH:
                    n = read_packed(self.data, at, at + value, self.frames, n)
                else:
                    self.frames[n] = value
                    n += 1
            if kind == LENGTH:
                at += value
        frames = self.frames
        kept: i64 = 0
        for k in range(n):
            if frames[k] != 0 or self.has_first_location():
                tables.entry(LOCATION, frames[k])
                frames[kept] = frames[k]
                kept += 1
        return kept

    def has_first_location(self) -> bool:
        """Return whether the entry 0 of locations is one, which no sender should have there."""
        if self.first_location < 0:
            is_set = self.tables.count(LOCATION) > 0 and (self.read_location(0) > 0 or self.cells[2] != 0)
            self.first_location = 1 if is_set else 0
        return self.first_location == 1

    def weights(self) -> list[tuple[int, int, int]]:
        """Return each location that the samples have, and how much the samples weigh that have it.

        The last number is -1 for one that is only at the end of stacks, else how much those weigh that have
        it as a caller.
        """
        self.hefts = hefts = room(self.hefts, self.tables.count(LOCATION))
        self.calls = calls = room(self.calls, self.tables.count(LOCATION))
        for each in self.weighed:  # by the profile before
            hefts[each] = calls[each] = 0
        self.weighed = []
        ends, words = self.rows.ends, self.rows.words
        for row in range(self.n_rows):
            weight: i64 = self.sums[row]
            weight = max(min(weight, _HEAVIEST), -_HEAVIEST)
            weight = max(weight, -weight)
            n: i64 = self.read_frames(words[ends[row]])
            for k in range(n):
                index: i64 = self.frames[k]
                if hefts[index] == 0:
                    self.weighed.append(int(index))
                    hefts[index] = 1  # a sample may weigh nothing
                hefts[index] += weight
                if k > 0:
                    calls[index] += weight + (1 if calls[index] == 0 else 0)
        return [(each, int(hefts[each]) - 1, int(calls[each]) - 1) for each in self.weighed]

    def location(self, index: i64) -> tuple[int, int, list[tuple[int, int]]]:
        """Return the mapping of a location, its address, and the function and line of each of its lines."""
        n: i64 = self.read_location(index)
        lines = [(int(self.some[3 * k]), int(self.some[3 * k + 1])) for k in range(n)]
        return int(self.cells[1]), int(self.cells[2]), lines

    def base(self, mapping: i64) -> int:
        """Return what an address in a mapping is more than its place in the mapped file."""
        cells = zeros(4)
        at, end = self.tables.read(MAPPING, mapping)
        read_scalars(self.data, at, end, cells, 0, 4)
        return int(wrapped(cells[0] - cells[2]))

    def function(self, index: i64) -> tuple[bytes, bytes, int]:
        """Return the name, the file and the start line of a function."""
        cells, tables = self.cells, self.tables
        at, end = tables.read(FUNCTION, index)
        read_scalars(self.data, at, end, cells, 0, 4)
        name = tables.content(STRING, cells[0]) if cells[0] != 0 else b""
        filename = tables.content(STRING, cells[2]) if cells[2] != 0 else b""
        return name, filename, int(cells[3])

    def begin(self, known: dict[int, list[KnownLine]]) -> None:
        """Begin to write the profile that was read. Some locations have known lines in place of theirs.

        One that is known to have none is left out of all stacks.
        """
        self.profile += 1
        self.known, self.known_ids = known, {}
        self.n_locations = self.n_mappings = self.n_functions = 0
        self.samples.at = self.locations.at = self.functions.at = 0
        self.table = StringTable([])
        self.table.add(b"")

    def text(self, text: bytes) -> i64:
        """Use a text; return its index in the string table of the profile. Raises UnicodeDecodeError."""
        known = self.table.index_of.get(text)
        if known is None:
            text.decode()
            return self.table.add(text)
        return known

    def string(self, index: i64) -> i64:
        """Use a string of the dictionary."""
        if index == 0:
            return 0
        entry: i64 = self.tables.entry(STRING, index)
        known: i64 = self.ids[entry]
        if known >> 32 != self.profile:
            known = self.profile << 32 | self.text(self.tables.content(STRING, index))
            self.ids[entry] = known
        return known & _ID_BITS

    def write_samples(self, period: i64) -> None:
        """Write the samples, each with its sum, and if there is a period, as many times that."""
        ends, words = self.rows.ends, self.rows.words
        most: i64 = _MOST // period if period > 1 else _MOST
        for row in range(self.n_rows):
            if self.sums[row] > most or self.sums[row] < -most:
                refuse_sum()
            self.write_sample(words, ends[row], ends[row + 1], self.sums[row], period)

    def write_sample(self, words: vec[i64], begin: i64, end: i64, sum_: i64, period: i64) -> None:
        """Write a sample: its stack is words[begin], its labels are the next."""
        n: i64 = self.read_frames(words[begin])
        frames, first = self.frames, self.tables.firsts[LOCATION]
        of_frames: i64 = 0
        kept: i64 = 0
        for k in range(n):
            if self.ids[first + frames[k]] >> 32 != self.profile:
                self.write_location(frames[k])
            id_: i64 = self.ids[first + frames[k]] & _ID_BITS
            if id_ != 0:
                frames[kept] = id_
                kept += 1
                of_frames += size_of(id_)
        n = kept
        n_labels: i64 = end - begin - 1
        self.labels = labels = room(self.labels, 4 * n_labels)
        of_labels: i64 = 0
        for k in range(n_labels):
            label: i64 = words[begin + 1 + k]
            if self.label_uses[label] != self.profile:
                self.label_uses[label] = self.profile
                self.use_label(label)
            for i in range(4):
                labels[4 * k + i] = self.label_cells[4 * label + i]
            of_label: i64 = fields_size(labels, 4 * k, 4)
            of_labels += 1 + size_of(of_label) + of_label
        total: i64 = sum_ * period
        of_values: i64 = size_of(sum_) + (size_of(total) if period > 0 else i64(0))
        size: i64 = 1 + size_of(of_values) + of_values + of_labels
        if n > 0:
            size += 1 + size_of(of_frames) + of_frames
        chars = self.samples.reserve(24 + size)
        at: i64 = put(chars, put(chars, self.samples.at, 2 << 3 | LENGTH), size)
        if n > 0:
            at = put(chars, put(chars, at, 1 << 3 | LENGTH), of_frames)
            for k in range(n):
                at = put(chars, at, frames[k])
        at = put(chars, put(chars, put(chars, at, 2 << 3 | LENGTH), of_values), sum_)
        if period > 0:
            at = put(chars, at, total)
        for k in range(n_labels):
            at = put(chars, put(chars, at, 3 << 3 | LENGTH), fields_size(labels, 4 * k, 4))
            at = put_fields(chars, at, labels, 4 * k, 4)
        self.samples.at = at
        self.check_bytes()

    def use_label(self, label: i64) -> None:
        """Set the cells of a label for the profile that is written."""
        key, text, number, unit = self.label_texts[int(label)]
        cells = self.label_cells
        cells[4 * label + 3] = self.text(unit)
        cells[4 * label] = self.text(key)
        cells[4 * label + 1] = self.text(text)
        cells[4 * label + 2] = number

    def size(self) -> i64:
        """Return how many bytes the profiles have so far."""
        return self.n_bytes + self.samples.at + self.locations.at + self.functions.at

    def check_bytes(self) -> None:
        """Raise LimitExceeded if the profiles are too large together."""
        if self.size() > self.most_bytes:
            self.limits.check("inflated_bytes", self.size())

    def take_bytes(self, size: i64) -> None:
        """Take the bytes of a finished profile from the room."""
        self.n_bytes += size
        self.limits.check("inflated_bytes", self.n_bytes)
        self.tables.most_read += TIMES_READ * size

    def written(self) -> bytes:
        """Return the records of the profile: samples, mappings, locations, functions and strings."""
        mappings, strings = Writer(_WHOLE), Writer(_WHOLE)
        cells = zeros(10)
        for row in range(self.n_mappings):
            for k in range(10):
                cells[k] = self.mappings[10 * row + k]
            for k in range(4):
                if self.told[4 * row + k] >= 0:
                    cells[6 + k] = self.told[4 * row + k]
            mappings.message(3, cells, 10)
        strings.strings(self.table)
        made = (self.samples, mappings, self.locations, self.functions, strings)
        return b"".join([bytes(memoryview(writer.chars)[: writer.at]) for writer in made])

    def read_location(self, index: i64) -> i64:
        """Set `some` to the lines of a location, 3 cells each, and `cells` to its other fields.

        Returns how many lines there are. Of the cells, 1 is the mapping, 2 the address and 4 whether it is
        folded, as in pprof.
        """
        data, cells = self.data, self.cells
        at, end = self.tables.read(LOCATION, index)
        n: i64 = 0
        n_attributes: i64 = 0
        folded: i64 = 1
        cells[1] = cells[2] = 0
        while at < end:
            tag, value, at = field(data, at, end)
            number: i64 = number_of(tag)
            kind: i64 = tag & 7
            stop: i64 = at + value if kind == LENGTH else at
            if kind == VARINT and (number == 1 or number == 2):
                cells[number] = value
            elif kind == LENGTH and number == 3:
                if self.n_lines + n >= self.most_lines:
                    self.limits.check("lines", self.n_lines + n + 1)
                self.some = room(self.some, 3 * n + 3)
                read_scalars(data, at, stop, self.some, 3 * n, 3)
                n += 1
            elif number == 4 and (kind == VARINT or kind == LENGTH):
                n_attributes += count_varints(data, at, stop) if kind == LENGTH else i64(1)
                if n_attributes > self.most_nested:
                    self.limits.check("nested_messages", n_attributes, "attribute_indices")
                if kind == VARINT:
                    folded = self.folded_by(value, folded)
                while at < stop:
                    value, at = varint(data, at, stop)
                    folded = self.folded_by(value, folded)
            at = stop
        cells[4] = 1 if folded == 2 else 0
        return n

    def folded_by(self, attribute: i64, folded: i64) -> i64:
        """Return what `folded_of` says of an attribute, which is asked once; `folded` if another told."""
        if attribute == 0:
            return folded
        self.tables.entry(ATTRIBUTE, attribute)
        if folded != 1:
            return folded
        if self.folded[attribute] == 0:
            self.folded[attribute] = u8(self.folded_of(int(attribute)))
        return i64(self.folded[attribute])

    def write_location(self, index: i64) -> None:
        """Write a location and what it refers to. The id of one that is left out is 0."""
        n: i64 = self.read_location(index)
        some, cells = self.some, self.cells
        is_folded = cells[4] != 0
        mapping: i64 = self.write_mapping(cells[1]) if cells[1] != 0 else i64(0)
        known = self.known.get(int(index)) if self.known else None
        if known is not None:
            n = i64(len(known))
            if n == 0:
                self.ids[self.tables.entry(LOCATION, index)] = self.profile << 32
                return
            self.some = some = room(some, 3 * n)
            if self.n_lines + n > self.most_lines:
                self.limits.check("lines", self.n_lines + n)
        self.n_lines += n
        self.n_locations += 1
        self.ids[self.tables.entry(LOCATION, index)] = self.profile << 32 | self.n_locations
        has_filenames, has_lines = True, True
        size: i64 = 0
        kept: i64 = 0
        for k in range(n):
            function: i64 = 0
            if known is None:
                function = self.write_function(some[3 * k])
            else:
                line = known[k]
                function = self.write_known(line)
                some[3 * k + 1], some[3 * k + 2] = line[3], 0
            if function == 0:
                continue
            has_filenames = has_filenames and self.filenames[function] != 0
            has_lines = has_lines and some[3 * k + 1] != 0
            some[3 * kept] = function
            some[3 * kept + 1], some[3 * kept + 2] = some[3 * k + 1], some[3 * k + 2]
            of_line: i64 = fields_size(some, 3 * kept, 3)
            size += 1 + size_of(of_line) + of_line
            kept += 1
        cells[0], cells[1] = self.n_locations, mapping
        size += fields_size(cells, 0, 3) + (2 if is_folded else 0)
        chars = self.locations.reserve(24 + size)
        at: i64 = put(chars, put(chars, self.locations.at, 4 << 3 | LENGTH), size)
        at = put_fields(chars, at, cells, 0, 3)
        for k in range(kept):
            at = put(chars, put(chars, at, 4 << 3 | LENGTH), fields_size(some, 3 * k, 3))
            at = put_fields(chars, at, some, 3 * k, 3)
        if is_folded:
            at = put(chars, put(chars, at, 5 << 3), 1)
        self.locations.at = at
        self.check_bytes()
        if mapping != 0:
            flags: i64 = 10 * (mapping - 1) + 6
            if kept == 0:
                self.mappings[flags] = self.mappings[flags + 1] = self.mappings[flags + 2] = 0
            if not has_filenames:
                self.mappings[flags + 1] = 0
            if not has_lines:
                self.mappings[flags + 2] = 0
            if kept > 1:
                self.mappings[flags + 3] = 1

    def write_mapping(self, index: i64) -> i64:
        """Return the id of a mapping, whose cells are kept until all of its locations are written."""
        entry: i64 = self.tables.entry(MAPPING, index)
        if self.ids[entry] >> 32 != self.profile:
            first: i64 = 10 * self.n_mappings
            self.n_mappings += 1
            self.ids[entry] = self.profile << 32 | self.n_mappings
            self.mappings = cells = room(self.mappings, first + 10)
            self.told = told = room(self.told, 4 * self.n_mappings)
            at, end = self.tables.read(MAPPING, index)
            for k in range(1, 5):
                cells[first + k] = 0
            while at < end:
                tag, value, at = field(self.data, at, end)
                if tag & 7 == LENGTH:
                    at += value
                elif 8 <= tag < 40 and tag & 7 == VARINT:
                    cells[first + (tag >> 3)] = value
            cells[first] = self.n_mappings
            cells[first + 4] = self.string(cells[first + 4])
            build_id, functions, filenames, lines, inlined = self.mapping_of(int(index))
            cells[first + 5] = self.text(build_id)
            cells[first + 6] = cells[first + 7] = cells[first + 8] = 1
            cells[first + 9] = 0
            of_told: i64 = 4 * self.n_mappings - 4
            told[of_told], told[of_told + 1] = functions, filenames
            told[of_told + 2], told[of_told + 3] = lines, inlined
        return self.ids[entry] & _ID_BITS

    def write_function(self, index: i64) -> i64:
        """Return the id of a function, which is written if it is new; 0 if it isn't set."""
        if index == 0:
            return 0
        entry: i64 = self.tables.entry(FUNCTION, index)
        if self.ids[entry] >> 32 != self.profile:
            cells = zeros(5)
            at, end = self.tables.read(FUNCTION, index)
            read_scalars(self.data, at, end, cells, 1, 4)
            for k in range(1, 4):
                cells[k] = self.string(cells[k])
            self.ids[entry] = self.profile << 32 | self.put_function(cells)
        return self.ids[entry] & _ID_BITS

    def write_known(self, line: KnownLine) -> i64:
        """Return the id of the function of a known line, which is written if it is new."""
        name, filename, start_line, _ = line
        function: KnownLine = (name, filename, start_line, 0)
        known = self.known_ids.get(function)
        if known is not None:
            return i64(known)
        cells = zeros(5)
        cells[1], cells[3], cells[4] = self.text(name), self.text(filename), start_line
        if start_line > 0:
            cells[2] = cells[1]
        made: i64 = self.put_function(cells)
        self.known_ids[function] = int(made)
        return made

    def put_function(self, cells: vec[i64]) -> i64:
        """Write a function, whose cells are those of pprof; return its id."""
        self.n_functions += 1
        cells[0] = self.n_functions
        self.filenames = room(self.filenames, self.n_functions + 1)
        self.filenames[self.n_functions] = cells[3]
        self.functions.message(5, cells, 5)
        return self.n_functions


def summed(left: i64, right: i64) -> i64:
    """Return a sum. Raises MalformedProfile if 63 bits don't hold it."""
    total: i64 = wrapped(left + right)
    if (left ^ total) & (right ^ total) < 0:
        refuse_sum()
    return total


def refuse_sum() -> None:
    """Raise MalformedProfile for values that 63 bits don't hold."""
    raise MalformedProfile("the values of a stack add up to more than 63 bits")
