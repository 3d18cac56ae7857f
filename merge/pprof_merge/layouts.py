"""Records that have the same fields in the same order: one field of all of them is read at once.

A profiler lays out the records of a table in few ways: one for each number of lines of a location, say. A
record is known to be laid out as another one by its tags and by the lengths of the messages in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from pprof_merge.profile import Bools, Int64s
from pprof_merge.varint_table import IrregularLayout, VarintTable
from pprof_merge.wire import Message, WireType

# A layout of fewer records isn't worth the search, and after so many layouts the others are rare.
_FEWEST_RECORDS = 24
_MOST_LAYOUTS = 16

# By the number of a scalar field, the place of its value among the varints of a record.
Places = dict[int, int]


class _Shape:
    """Of one record: its tags by their places, the runs of varints that are a message, and the fields."""

    def __init__(self, values: list[int], starts: list[int], message: Message) -> None:
        """From the record's varints and the byte where each starts. Raises IrregularLayout."""
        self._values, self._starts = values, starts
        self.tags: Places = {}
        self.runs: list[tuple[int, int]] = []
        self.messages: list[Places] = []
        self.fields = self._read(0, len(values), message)

    def _read(self, place: int, end: int, message: Message) -> Places:
        fields: Places = {}
        while place < end:
            tag, value = self._values[place], place + 1
            self.tags[place] = tag
            number, kind = tag >> 3, tag & 7
            if value == end:
                raise IrregularLayout
            if kind == WireType.VARINT and number in message.scalars:
                fields[number] = value
                place = value + 1
            elif kind == WireType.LENGTH and number in message.messages:
                start, place = value + 1, self._end_of_run(value + 1, end)
                self.runs.append((start, place))
                self.messages.append(self._read(start, place, message.messages[number]))
            else:
                raise IrregularLayout
        return fields

    def _end_of_run(self, start: int, end: int) -> int:
        """Where the run of varints ends whose length stands before `start`."""
        end_byte = self._starts[start] + self._values[start - 1]
        place = bisect_left(self._starts, end_byte, start)
        if place > end or self._starts[place] != end_byte:
            raise IrregularLayout
        return place


class Layout:
    """Records (k,) of one layout: the places of their scalar fields, and of those of each message within."""

    def __init__(self, varints: VarintTable, rows: Int64s, begins: Int64s, shape: _Shape) -> None:
        self.rows = rows
        self.fields, self.messages = shape.fields, shape.messages
        self._values, self._begins = varints.values, begins

    def column(self, place: int) -> Int64s:
        """The varint at this place of each record, (k,)."""
        return self._values[place:].take(self._begins)


def layouts_of(varints: VarintTable, message: Message) -> tuple[list[Layout], Int64s]:
    """The layouts that most records have, and the records that have other ones."""
    counts = varints.counts
    frequencies = np.bincount(counts)
    is_other = np.ones(len(counts), np.bool_)
    layouts = []
    for count in frequencies.argsort()[: -_MOST_LAYOUTS - 1 : -1].tolist():
        if frequencies[count] < _FEWEST_RECORDS:
            break
        rows = (counts == count).nonzero()[0]
        for layout in _of_one_length(varints, message, rows, count):
            layouts.append(layout)
            is_other[layout.rows] = False
    return layouts, is_other.nonzero()[0]


def _of_one_length(varints: VarintTable, message: Message, rows: Int64s, count: int) -> Iterator[Layout]:
    """The layouts of records that have equally many varints: as a rule one."""
    begins = varints.ends.take(rows) - count
    for _ in range(_MOST_LAYOUTS):
        try:
            shape = _shape_at(varints, int(begins[0]), count, message)
        except IrregularLayout:
            return
        alike = _have(varints, begins, shape)
        yield Layout(varints, rows[alike], begins[alike], shape)
        rows, begins = rows[~alike], begins[~alike]
        if len(rows) < _FEWEST_RECORDS:
            return


def _shape_at(varints: VarintTable, begin: int, count: int, message: Message) -> _Shape:
    values, starts = varints.values[begin : begin + count], varints.starts[begin : begin + count + 1]
    return _Shape(values.tolist(), starts.tolist(), message)


def _have(varints: VarintTable, begins: Int64s, shape: _Shape) -> Bools:
    """Which of the records that begin there have this shape."""
    alike = np.ones(len(begins), np.bool_)
    for place, tag in shape.tags.items():
        alike &= varints.values[place:].take(begins) == tag
    for start, end in shape.runs:
        lengths = varints.values[start - 1 :].take(begins)
        alike &= varints.starts[end:].take(begins) - varints.starts[start:].take(begins) == lengths
    return alike
