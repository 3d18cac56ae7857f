"""The dictionary of OTLP: where its entries are, which aren't read before a profile refers to them.

The entry 0 of a table stands for "not set". mypyc compiles this module.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from pprof_merge.codec.wire import FIXED64, LENGTH, VARINT, field, number_of, varint
from pprof_merge.columns.vectors import zeros
from pprof_merge.errors import LimitExceeded, MalformedProfile
from pprof_merge.limits import Limits

# The tables of a dictionary, by the numbers of their fields.
MAPPING: Final[i64] = 1
LOCATION: Final[i64] = 2
FUNCTION: Final[i64] = 3
LINK: Final[i64] = 4
STRING: Final[i64] = 5
ATTRIBUTE: Final[i64] = 6
STACK: Final[i64] = 7
_N_TABLES: Final[i64] = 8
_NAMES: Final = ("", "mapping", "location", "function", "link", "string", "attribute", "stack")
_LIMITS: Final = ("", "mappings", "locations", "functions", "labels", "strings", "labels", "samples")


# How many times as many bytes of the dictionary may be read as the request has, and how many anyway. What
# isn't written, such as unknown fields, or what a profile is refused for, is read for each profile again.
TIMES_READ: Final[i64] = 8
_READ_ANYWAY: Final[i64] = 2 << 20

# The fields of a profile with its samples, and of a sample with its timestamps.
SAMPLES: Final[i64] = 2
TIMESTAMPS: Final[i64] = 5


@final
class DictionaryTables:
    """The tables of a dictionary: for each entry, where its message or text begins in the request, and ends.

    Table `t`, the number of its field, has `counts[t]` entries. Entry i is in the cells 2 * (firsts[t] + i)
    and the next. Of the dictionary, `n_read` bytes were read, and `most_read` may be. Methods raise
    MalformedProfile, and those that read an entry LimitExceeded.
    """

    def __init__(self, data: bytes, dictionaries: list[tuple[int, int]], limits: Limits) -> None:
        """Find the entries in all `dictionaries`. Raises LimitExceeded."""
        self.data: bytes = data
        self.n_read: i64 = 0
        self.most_read: i64 = _READ_ANYWAY + TIMES_READ * i64(len(data))
        self.most_bytes: i64 = limits.inflated_bytes
        self.counts: vec[i64] = zeros(_N_TABLES)
        self.firsts: vec[i64] = zeros(_N_TABLES)
        self.spans: vec[i64] = zeros(0)
        counts, firsts = self.counts, self.firsts
        for begin, end in dictionaries:
            at: i64 = begin
            while at < end:
                tag, value, at = field(data, at, end)
                if tag & 7 == LENGTH:
                    if 0 < tag < 8 * _N_TABLES:
                        counts[tag >> 3] += 1
                    at += value
        n: i64 = 0
        for table in range(1, _N_TABLES):
            firsts[table] = n
            n += counts[table]
            if _LIMITS[table]:
                limits.check(_LIMITS[table], counts[table])
        self.spans = spans = zeros(2 * n)
        counts = zeros(_N_TABLES)
        for begin, end in dictionaries:
            at = begin
            while at < end:
                tag, value, at = field(data, at, end)
                if tag & 7 == LENGTH:
                    if 0 < tag < 8 * _N_TABLES:
                        cell: i64 = 2 * (firsts[tag >> 3] + counts[tag >> 3])
                        spans[cell], spans[cell + 1] = at, at + value
                        counts[tag >> 3] += 1
                    at += value

    def entry(self, table: i64, index: i64) -> i64:
        """Return the number of an entry among those of all tables."""
        if index < 0 or index >= self.counts[table]:
            name = _NAMES[table]
            raise MalformedProfile(
                f"{name} {index} is not in the dictionary, whose table has {self.counts[table]} entries"
            )
        return self.firsts[table] + index

    def count(self, table: i64) -> i64:
        """Return how many entries a table has."""
        return self.counts[table]

    def read(self, table: i64, index: i64) -> tuple[i64, i64]:
        """Return where an entry begins, and ends, which is read then."""
        cell: i64 = 2 * self.entry(table, index)
        begin: i64 = self.spans[cell]
        end: i64 = self.spans[cell + 1]
        self.n_read += end - begin
        if self.n_read > self.most_read:
            raise LimitExceeded("inflated_bytes", int(self.most_bytes), "the dictionary is read too often")
        return begin, end

    def content(self, table: i64, index: i64) -> bytes:
        """Return an entry: its message, or its text."""
        begin, end = self.read(table, index)
        return self.data[begin:end]

    def attributes_of_mapping(self, index: i64, most: i64) -> list[int]:
        """Return the attributes of a mapping, `most` and one at most."""
        at, end = self.read(MAPPING, index)
        found: list[int] = []
        while at < end:
            tag, value, at = field(self.data, at, end)
            stop: i64 = at + value if tag & 7 == LENGTH else at
            if tag == 5 << 3:
                found.append(int(value))
            while tag == 5 << 3 | LENGTH and at < stop and len(found) <= most:
                value, at = varint(self.data, at, stop)
                found.append(int(value))
            at = stop
        return found[: most + 1]


def without(data: bytes, at: i64, end: i64, number: i64) -> bytes:
    """Return a message without its fields of a number that have a length. Raises MalformedProfile."""
    kept: list[bytes] = []
    begin: i64 = at
    while at < end:
        start: i64 = at
        tag, value, at = field(data, at, end)
        if tag & 7 == LENGTH:
            at += value
            if number_of(tag) == number:
                if begin < start:
                    kept.append(data[begin:start])
                begin = at
    kept.append(data[begin:end])
    return b"".join(kept)


def wires_of_samples(data: bytes, begin: i64, end: i64, n_attributes: i64, n_links: i64) -> int:
    """Return what the samples of a profile tell of their wire: 1.10 changed the numbers of their fields.

                            1.8 and 1.9    since 1.10
        values              2, numbers     4, numbers
        attributes          3, numbers     2, numbers
        link                4, one number  3, one number

    It is a sum: 1 if one is surely of 1.8, and 2 if one is surely of 1.10, since several numbers, or packed
    ones, are in the field where the other wire has one; 4 if one can't be read as of 1.8, and 8 as of 1.10:
    it has neither values nor timestamps, or not as many, or an attribute or a link that the dictionary
    lacks. Numbers may be packed or not, as protobuf allows. Raises MalformedProfile.
    """
    told: i64 = 0
    counts, outside = zeros(5), zeros(5)
    while begin < end:
        tag, value, begin = field(data, begin, end)
        if tag & 7 != LENGTH:
            continue
        at: i64 = begin
        begin += value
        if number_of(tag) != SAMPLES:
            continue
        n_times: i64 = 0
        for k in range(2, 5):
            counts[k] = outside[k] = 0
        stop: i64 = begin
        while at < stop:
            tag, value, at = field(data, at, stop)
            number: i64 = number_of(tag)
            kind: i64 = tag & 7
            last: i64 = at + value if kind == LENGTH else at
            if number == TIMESTAMPS:
                n_times += value >> 3 if kind == LENGTH else i64(1 if kind == FIXED64 else 0)
            elif 2 <= number <= 4 and (kind == LENGTH or kind == VARINT):
                if kind == LENGTH and number > 2:
                    told |= 1 if number == 3 else 2
                while kind == VARINT or at < last:
                    if kind == LENGTH:
                        value, at = varint(data, at, last)
                    counts[number] += 1
                    if counts[number] > 1 and number > 2:
                        told |= 1 if number == 3 else 2
                    # A link is at the place of an attribute of the other wire.
                    if value < 0 or value >= n_attributes:
                        outside[number] |= 1
                    if value < 0 or (value >= n_links and value > 0):
                        outside[number] |= 2
                    if kind == VARINT:
                        break
            at = last
        if are_unlike(counts[2], n_times) or outside[3] & 1 != 0 or outside[4] & 2 != 0:
            told |= 4
        if are_unlike(counts[4], n_times) or outside[2] & 1 != 0 or outside[3] & 2 != 0:
            told |= 8
    return int(told)


def are_unlike(n_values: i64, n_times: i64) -> bool:
    """Return whether a sample can't have these numbers of values and timestamps."""
    return (n_values != n_times and n_values != 0 and n_times != 0) or n_values + n_times == 0
