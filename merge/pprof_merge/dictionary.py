"""What many profiles share: strings, functions, mappings, locations, label sets and stacks, each once.

A profile that is interned leaves `Rows`: for each sample, the number of its stack and its values. Two
things are the same where google/pprof's `profile.Merge` takes them for the same (its `key` methods):

    function    name, system name, file name, start line
    mapping     size rounded up to 4 KiB, offset, and build id or else file name
    location    mapping, address from the mapping's start, folded, function and line of every line,
                and the last line's column
    stack       locations, and labels sorted by key, those with text before those with a number
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pprof_merge.numbering import Numbers
from pprof_merge.profile import Bools, Functions, Header, Int64s, Labels, Lines, Mappings, Profile
from pprof_merge.ragged import first_appearance, offsets_of, rows_at, spans, take_rows

Int32s = NDArray[np.int32]

_ZERO, _ONE, _PAGE = np.uint64(0), np.uint64(1), np.uint64(0x1000)

# How many words a key has: all of a function's; of a location's, those before its lines.
_FUNCTION_WORDS = 4
_LOCATION_WORDS = 4


class Mapping(NamedTuple):
    """One mapping with its attributes; file name and build id are numbers of strings."""

    start: int
    limit: int
    offset: int
    filename: int
    build_id: int
    flags: tuple[bool, ...]


class Label(NamedTuple):
    """One label; `text` is -1 where it is a number. All but `number` are numbers of strings."""

    key: int
    text: int
    number: int
    unit: int


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What is left of a profile once it is interned: (k,) stacks and (k, n_types) values of its k samples.

    Samples whose values are all 0 are gone. `mappings` are the ones that samples use, by their number in
    the dictionary, in the order of first use; `main` is the profile's first mapping, used or not.
    """

    header: Header
    digest: bytes
    stacks: Int32s
    values: Int64s
    main: dict[int, Mapping]
    mappings: dict[int, Mapping]


class LocationRows(NamedTuple):
    """Some locations; `mapping` is a number of the dictionary (-1: none), `address` from its start on."""

    mapping: Int64s
    address: Int64s
    folded: Bools
    lines: Lines


class Dictionary:
    """The tables; numbers are given in the order of arrival and never change."""

    def __init__(self) -> None:
        self.strings: Numbers[bytes] = Numbers([b""])
        self._mappings: Numbers[tuple[int, int, int]] = Numbers()
        self._functions: Numbers[bytes] = Numbers()
        self._locations: Numbers[bytes] = Numbers()
        self._label_sets: Numbers[tuple[Label, ...]] = Numbers([()])
        self._stacks: Numbers[bytes] = Numbers()
        # Columns of the lines that aren't in a location's key; few profilers write any. Go keeps those it
        # sees first; the largest do not depend on the order.
        self._inner_columns: dict[int, tuple[int, ...]] = {}

    def intern(self, profile: Profile) -> Rows:
        """Takes in a profile, as `decode` makes them."""
        texts = self.strings.of(profile.strings)
        mappings, mapping_numbers = self._intern_mappings(profile.mappings, texts)
        functions = self._intern_functions(profile, texts)
        locations = self._intern_locations(profile, mapping_numbers, functions)
        kept = np.flatnonzero(profile.samples.values.any(axis=1))
        frames, offsets = take_rows(profile.samples.location_offsets, kept)
        frames = profile.samples.locations[frames]
        label_sets = self._intern_label_sets(profile.samples.labels, profile.strings, texts)
        used, _ = first_appearance(frames)
        mapped = profile.locations.mapping[used]
        used, _ = first_appearance(mapped[mapped >= 0])
        first_use: dict[int, Mapping] = {}
        for row in used.tolist():
            first_use.setdefault(int(mapping_numbers[row]), mappings[row])
        return Rows(
            header=profile.header,
            digest=profile.digest,
            stacks=self._intern_stacks(label_sets[kept], locations[frames], offsets),
            values=profile.samples.values[kept],
            main={int(mapping_numbers[0]): mappings[0]} if mappings else {},
            mappings=first_use,
        )

    def _intern_mappings(self, mappings: Mappings, texts: Int64s) -> tuple[list[Mapping], Int64s]:
        attributes = [
            Mapping(
                int(mappings.start[row]),
                int(mappings.limit[row]),
                int(mappings.offset[row]),
                int(texts[mappings.filename[row]]),
                int(texts[mappings.build_id[row]]),
                tuple(mappings.flags[row].tolist()),
            )
            for row in range(len(mappings))
        ]
        sizes = (mappings.limit - mappings.start + (_PAGE - _ONE)) // _PAGE * _PAGE
        return attributes, self._mappings.of(
            [
                (size, m.offset, m.build_id or m.filename)
                for size, m in zip(sizes.tolist(), attributes, strict=True)
            ]
        )

    def _intern_functions(self, profile: Profile, texts: Int64s) -> Int64s:
        functions = profile.functions
        columns = np.empty((len(functions), _FUNCTION_WORDS), np.int64)
        columns[:, 0] = texts[functions.name]
        columns[:, 1] = texts[functions.system_name]
        columns[:, 2] = texts[functions.filename]
        columns[:, 3] = functions.start_line
        return self._functions.of(_slices(columns, np.arange(len(columns) + 1) * _FUNCTION_WORDS))

    def _intern_locations(self, profile: Profile, mappings: Int64s, functions: Int64s) -> Int64s:
        locations, lines = profile.locations, profile.locations.lines
        n_lines = np.diff(lines.offsets)
        offsets = offsets_of(_LOCATION_WORDS + 2 * n_lines)
        head = offsets[:-1]
        flat = np.empty(offsets[-1], np.int64)
        start = np.append(profile.mappings.start, _ZERO)  # row -1: no mapping, and nothing to subtract
        flat[head] = np.append(mappings, -1)[locations.mapping]
        flat[head + 1] = (locations.address - start[locations.mapping]).view(np.int64)
        flat[head + 2] = locations.folded
        has_lines = np.flatnonzero(n_lines)
        flat[head + 3] = 0
        flat[head[has_lines] + 3] = lines.column[lines.offsets[has_lines + 1] - 1]
        body = np.repeat(head + _LOCATION_WORDS - 2 * lines.offsets[:-1], n_lines) + 2 * np.arange(len(lines))
        flat[body] = functions[lines.function]
        flat[body + 1] = lines.line
        numbers = self._locations.of(_slices(flat, offsets))
        self._keep_inner_columns(lines, numbers)
        return numbers

    def _keep_inner_columns(self, lines: Lines, numbers: Int64s) -> None:
        inner = lines.column != 0
        inner[lines.offsets[1:][np.diff(lines.offsets) > 0] - 1] = False
        for row in np.unique(rows_at(lines.offsets, np.flatnonzero(inner))).tolist():
            columns = tuple(lines.column[lines.offsets[row] : lines.offsets[row + 1]].tolist())
            number = int(numbers[row])
            self._inner_columns[number] = max(columns, self._inner_columns.get(number, ()))

    def _intern_label_sets(self, labels: Labels, strings: list[bytes], texts: Int64s) -> Int64s:
        """The number of each sample's label set, (n_samples,)."""
        if not len(labels):
            return np.zeros(len(labels.offsets) - 1, np.int64)
        columns = np.stack((labels.key, labels.text, labels.number, labels.unit), axis=1)
        distinct: dict[bytes, int] = {}
        keys = list(_slices(columns, labels.offsets * columns.shape[1]))
        for key in keys:
            if key not in distinct:
                rows = np.frombuffer(key, np.int64).reshape(-1, columns.shape[1]).tolist()
                rows.sort(key=lambda row: (row[1] < 0, strings[row[0]]))
                distinct[key] = self._label_sets[
                    tuple(
                        Label(
                            int(texts[key]), int(texts[text]) if text >= 0 else -1, number, int(texts[unit])
                        )
                        for key, text, number, unit in rows
                    )
                ]
        return np.fromiter(map(distinct.__getitem__, keys), np.int64, len(keys))

    def _intern_stacks(self, label_sets: Int64s, locations: Int64s, offsets: Int64s) -> Int32s:
        n_stacks = len(label_sets)
        flat = np.empty(len(locations) + n_stacks, np.int32)
        starts = offsets + np.arange(n_stacks + 1)
        flat[starts[:-1]] = label_sets
        flat[_but_first(starts)] = locations
        return self._stacks.of(_slices(flat, starts)).astype(np.int32)

    def stacks(self, numbers: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Of some stacks: label sets, and locations with their offsets."""
        flat, offsets = _columns(self._stacks, numbers, np.int32)
        return flat[offsets[:-1]], flat[_but_first(offsets)], offsets - np.arange(len(offsets))

    def label_sets(self, numbers: Int64s) -> list[tuple[Label, ...]]:
        """Some label sets."""
        keys = list(self._label_sets)
        return [keys[number] for number in numbers.tolist()]

    def locations(self, numbers: Int64s) -> LocationRows:
        """Of some locations: all columns."""
        flat, offsets = _columns(self._locations, numbers, np.int64)
        head = offsets[:-1]
        n_lines = (np.diff(offsets) - _LOCATION_WORDS) // 2
        body = spans(head + _LOCATION_WORDS, 2 * n_lines)
        lines = Lines(
            flat[body[0::2]], flat[body[1::2]], np.zeros(int(n_lines.sum()), np.int64), offsets_of(n_lines)
        )
        has_lines = np.flatnonzero(n_lines)
        lines.column[lines.offsets[has_lines + 1] - 1] = flat[head[has_lines] + 3]
        if self._inner_columns:
            for row, number in enumerate(numbers.tolist()):
                if number in self._inner_columns:
                    lines.column[lines.offsets[row] : lines.offsets[row + 1]] = self._inner_columns[number]
        return LocationRows(flat[head], flat[head + 1], flat[head + 2] != 0, lines)

    def functions(self, numbers: Int64s) -> Functions:
        """Of some functions: all columns."""
        columns = _columns(self._functions, numbers, np.int64)[0].reshape(-1, _FUNCTION_WORDS)
        return Functions(*columns.T)


def _but_first(offsets: Int64s) -> Bools:
    """Marks all of a ragged column but the first word of each row."""
    mask = np.ones(offsets[-1], np.bool_)
    mask[offsets[:-1]] = False
    return mask


def _slices(words: NDArray[np.int64] | Int32s, offsets: Int64s) -> Iterator[bytes]:
    """The bytes of each row of a ragged column; `words` may be a matrix, offsets count its words."""
    raw = words.tobytes()
    for start, end in pairwise((offsets * words.itemsize).tolist()):
        yield raw[start:end]


def _columns(
    keys: Iterable[bytes], numbers: Int64s, word: type[np.int32 | np.int64]
) -> tuple[Int64s, Int64s]:
    """The words of some keys, and their offsets: what `_slices` took apart."""
    every = list(keys)
    chosen = [every[number] for number in numbers.tolist()]
    lengths = np.fromiter(map(len, chosen), np.int64, len(chosen)) // np.dtype(word).itemsize
    return np.frombuffer(b"".join(chosen), word).astype(np.int64), offsets_of(lengths)
