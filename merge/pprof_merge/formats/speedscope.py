"""The format `speedscope`: a file for https://www.speedscope.app, by its file-format-schema.json.

The file has one profile for each sample type, of `"type": "sampled"`. A merge has no order in time. The
stacks are sorted so that those with the same first frames are together: the "Time Order" view is a flame
graph.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from pprof_merge.analysis.stacks import Frame, Stacks, default_column, stacks_of
from pprof_merge.analysis.units import unit_called
from pprof_merge.arrays import Int64s
from pprof_merge.budget import Budget, digits
from pprof_merge.columns.ragged import first_positions
from pprof_merge.profile import Profile, ValueType

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
# The units in the schema, the largest first, by what they measure; a value in another unit is a plain number.
_TIMES = ((10**9, "seconds"), (10**6, "milliseconds"), (10**3, "microseconds"), (1, "nanoseconds"))
_UNITS = {"nanoseconds": _TIMES, "bytes": ((1, "bytes"),)}
# A stack as bytes: the numbers of its frames, big-endian, so that sorting the bytes sorts the stacks.
_NUMBER = np.dtype(">u4")
_ADVICE = "select fewer profiles, or take the format pprof or go, which have each call once"


class _Paths(NamedTuple):
    """The n distinct stacks, sorted, as numbers of frames.

    `totals` (n, n_types) is the sum of the samples of each, `sizes` (n) the length of its JSON in bytes.
    """

    paths: list[bytes]
    totals: Int64s
    sizes: Int64s


def speedscope(profile: Profile, budget: Budget) -> Iterator[bytes]:
    """Yield the file's JSON. The file opens with the sample type that `go tool pprof` shows by default.

    Raises OutputTooLarge.
    """
    stacks = stacks_of(profile, budget)
    stacks.check(budget)
    used = _used(stacks)
    texts = sum(len(stacks.frames[row].name) + len(stacks.frames[row].file) for row in used.tolist())
    budget.check(texts, _ADVICE)
    found = _sums(stacks, used, profile.samples.values)
    weighed = np.abs(found.totals) > 0
    size = texts + int((weighed.sum(axis=1) * found.sizes).sum()) + int(weighed.sum())
    budget.check(size, _ADVICE)
    yield from budget.within(_document(profile, stacks.frames, used, found), _ADVICE)


def _document(profile: Profile, frames: list[Frame], used: Int64s, found: _Paths) -> Iterator[bytes]:
    yield b'{"$schema":%s,"shared":{"frames":[' % _text(_SCHEMA)
    yield from _listed(_text(_frame(frames[row])) for row in used.tolist())
    yield b']},"profiles":['
    for column, sample_type in enumerate(profile.header.sample_types):
        if column:
            yield b","
        yield from _sampled(sample_type, found.paths, found.totals[:, column])
    yield b'],"activeProfileIndex":%d,"exporter":"pprof-merge"}' % default_column(profile.header)


def _frame(frame: Frame) -> dict[str, str | int]:
    """Return the JSON of a frame, without the file and the line if they are unknown."""
    optional: dict[str, str | int] = {"file": frame.file, "line": frame.start_line}
    return {"name": frame.name, **{key: value for key, value in optional.items() if value}}


def _used(stacks: Stacks) -> Int64s:
    """Return the frames that are in a stack, in order of first appearance."""
    is_in = np.zeros(len(stacks.frames), np.bool_)
    return np.concatenate(
        [
            np.zeros(0, np.int64),
            *(chunk.rows[first_positions(chunk.rows, is_in)].astype(np.int64) for chunk in stacks.chunks()),
        ]
    )


def _sums(stacks: Stacks, used: Int64s, values: Int64s) -> _Paths:
    """Return the distinct stacks and their sums; frames are numbered in the order of `used`."""
    number_of = np.zeros(len(stacks.frames), np.int64)
    number_of[used] = np.arange(len(used))
    letters = digits(number_of) + 1  # with a comma after each
    numbers: dict[bytes, int] = {}
    of_sample = np.empty(len(values), np.int64)
    sizes: list[int] = []
    for chunk in stacks.chunks():
        rows = number_of[chunk.rows].astype(_NUMBER).tobytes()
        bounds = (chunk.offsets * _NUMBER.itemsize).tolist()
        ends = np.append(0, np.cumsum(letters[chunk.rows]))[chunk.offsets]
        lengths = (np.diff(ends) + 2).tolist()
        for sample, (begin, end, length) in enumerate(
            zip(bounds[:-1], bounds[1:], lengths, strict=True), chunk.first
        ):
            number = of_sample[sample] = numbers.setdefault(rows[begin:end], len(numbers))
            if number == len(sizes):
                sizes.append(length)
    paths = sorted(numbers)
    order = np.fromiter(map(numbers.__getitem__, paths), np.int64, len(paths))
    totals = np.zeros((len(paths), values.shape[1]), np.int64)
    np.add.at(totals, of_sample, values)
    return _Paths(paths, totals[order], np.array(sizes, np.int64)[order])


def _sampled(sample_type: ValueType, paths: list[bytes], totals: Int64s) -> Iterator[bytes]:
    """Yield the JSON of one profile. The schema has positive weights, so a stack has its size."""
    totals = np.abs(totals)
    weighed = np.flatnonzero(totals > 0)
    factor, unit = _unit(sample_type)
    # More may take more than 64 bits.
    weights = totals[weighed] if factor == 1 else totals[weighed].astype(object) * factor
    name = sample_type.type.decode(errors="backslashreplace")
    yield b'{"type":"sampled","name":%s,"unit":%s,"startValue":0,' % (_text(name), _text(unit))
    yield b'"endValue":%d,"samples":[' % _sum(weights)
    yield from _listed(
        b"[%s]" % b",".join([b"%d" % row for row in np.frombuffer(paths[path], _NUMBER).tolist()])
        for path in weighed
    )
    yield b'],"weights":['
    yield from _listed(b"%d" % weight for weight in weights)
    yield b"]}"


def _unit(sample_type: ValueType) -> tuple[int, str]:
    """Return a unit of the schema, and how many of it one of the sample type's unit is."""
    unit = unit_called(sample_type.unit.decode(errors="replace"))
    if unit is None:
        return 1, "none"
    size, name = next(each for each in _UNITS[unit.base] if each[0] <= unit.factor)
    return unit.factor // size, name


def _sum(weights: Int64s) -> int:
    """Return the sum as a Python number, since it may take more than 64 bits."""
    return (int((weights >> 32).sum()) << 32) + int((weights & 0xFFFFFFFF).sum())


def _listed(members: Iterable[bytes]) -> Iterator[bytes]:
    separator = b""
    for member in members:
        yield separator + member
        separator = b","


def _text(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
