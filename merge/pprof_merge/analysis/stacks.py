"""Stacks as people read them: from the root to the leaf, a frame for every function, inlined ones too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.columns.ragged import offsets_of, spans, take_rows
from pprof_merge.errors import ProfileError
from pprof_merge.profile import Bools, Header, Int32s, Int64s, Profile, Samples

# So many frames at a time, or one stack, are spelled out: a location may stand for 250 of them.
_CHUNK_FRAMES = 1 << 18
# What a frame takes where all of a profile are kept, and a function in Python's tables, in bytes.
FRAME_BYTES = 4
_FUNCTION_BYTES = 128
_FORMAT_ADVICE = "select fewer profiles, or take the format pprof or go, which don't spell out each stack"


class Frame(NamedTuple):
    """A function. Without a name it is named for its binary, `[service]`, or `<unknown>`, as pprof does."""

    name: str
    file: str
    start_line: int


class StackRows(NamedTuple):
    """The stacks of some samples that follow each other, from sample `first` on: `rows` is ragged by
    `offsets` (n + 1), the root first, and refers to frames. A sample without locations has none.
    """

    first: int
    rows: Int32s
    offsets: Int64s

    @property
    def samples(self) -> slice:
        """The samples whose stacks these are."""
        return slice(self.first, self.first + len(self.offsets) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Stacks:
    """The stacks of all samples: the `frames`, each once, and how many frames each stack has: `depths`
    (n_samples).

    Frames of locations are ragged, the innermost first; there is at least one for each.
    """

    frames: list[Frame]
    depths: Int64s
    _samples: Samples
    _location_frames: Int32s
    _location_offsets: Int64s

    @property
    def n_frames(self) -> int:
        """How many frames all stacks have together."""
        return int(self.depths.sum())

    def check(self, budget: Budget) -> None:
        """Raises OutputTooLarge if there are too many frames to be spelled out."""
        budget.check_rows(self.n_frames, FRAME_BYTES, _FORMAT_ADVICE)

    def chunks(self) -> Iterator[StackRows]:
        """All stacks, in the profile's order, a bounded number of frames at a time."""
        n_samples = len(self.depths)
        ends = np.cumsum(self.depths)
        first = 0
        while first < n_samples:
            before = int(ends[first - 1]) if first else 0
            end = int(np.searchsorted(ends, before + _CHUNK_FRAMES, side="right"))
            end = min(max(end, first + 1), n_samples)
            yield StackRows(first, self._rows(first, end), offsets_of(self.depths[first:end]))
            first = end

    def are_met(self, frames: Bools) -> tuple[Bools, Bools]:
        """Return whether the leaf, and whether any frame, of each stack is one of some: (n_samples) each.

        `frames` is (n_frames,). No stack is spelled out for it.
        """
        offsets, samples = self._location_offsets, self._samples
        in_location = frames[self._location_frames]
        is_innermost = in_location[offsets[:-1]]
        is_any = np.logical_or.reduceat(in_location, offsets[:-1]) if len(offsets) > 1 else is_innermost
        filled = np.flatnonzero(np.diff(samples.location_offsets))
        starts = samples.location_offsets[:-1][filled]
        is_leaf = np.zeros(len(self.depths), np.bool_)
        is_in = is_leaf.copy()
        if len(filled):
            is_leaf[filled] = is_innermost[samples.locations[starts]]
            is_in[filled] = np.logical_or.reduceat(is_any[samples.locations], starts)
        return is_leaf, is_in

    def _rows(self, first: int, end: int) -> Int32s:
        samples = self._samples
        bounds = samples.location_offsets[first : end + 1]
        locations = samples.locations[bounds[0] : bounds[-1]]
        index, offsets = take_rows(self._location_offsets, locations)
        starts = offsets[bounds - bounds[0]]
        # Both levels, a sample's locations and a location's lines, have the leaf first: one reversal does.
        mirrored = np.repeat(starts[:-1] + starts[1:] - 1, np.diff(starts)) - np.arange(len(index))
        return self._location_frames[index[mirrored]]


def stacks_of(profile: Profile, budget: Budget = UNBOUNDED) -> Stacks:
    """Return the stacks of all samples. Raises OutputTooLarge where there are too many functions."""
    budget.check_rows(len(profile.functions), _FUNCTION_BYTES, _FORMAT_ADVICE)
    frames: dict[Frame, int] = {}
    location_frames, location_offsets = _locations(profile, frames)
    depths = _depths(profile.samples, np.diff(location_offsets))
    return Stacks(list(frames), depths, profile.samples, location_frames, location_offsets)


def _depths(samples: Samples, counts: Int64s) -> Int64s:
    """How many frames each sample's stack has, by how many each location has."""
    filled = np.flatnonzero(np.diff(samples.location_offsets))
    depths = np.zeros(len(samples), np.int64)
    if len(filled):
        per_location = counts.astype(np.int32).take(samples.locations)
        depths[filled] = np.add.reduceat(per_location, samples.location_offsets[:-1][filled], dtype=np.int64)
    return depths


def _locations(profile: Profile, frames: dict[Frame, int]) -> tuple[Int32s, Int64s]:
    """The frames of each location, ragged, the innermost first; at least one for each."""
    lines = profile.locations.lines
    named = np.array(_function_frames(profile, frames), np.int32)
    n_lines = np.diff(lines.offsets)
    counts = np.maximum(n_lines, 1)
    offsets = offsets_of(counts)
    binary = np.array(_binary_frames(profile, frames), np.int32)
    found = np.repeat(binary[profile.locations.mapping], counts)
    known = named[lines.function]
    at = spans(offsets[:-1], n_lines)
    found[at[known >= 0]] = known[known >= 0]
    return found, offsets


def _function_frames(profile: Profile, frames: dict[Frame, int]) -> list[int]:
    """The frame of each function, -1 for those without a name."""
    functions, texts = profile.functions, _Texts(profile.strings)
    columns = (functions.name.tolist(), functions.filename.tolist(), functions.start_line.tolist())
    return [
        frames.setdefault(Frame(texts[name], texts[file], line), len(frames)) if texts[name] else -1
        for name, file, line in zip(*columns, strict=True)
    ]


def _binary_frames(profile: Profile, frames: dict[Frame, int]) -> list[int]:
    """The frame of what is in a mapping and has no name, for each mapping and, at the end, for none."""
    texts = _Texts(profile.strings)
    paths = [texts[row] for row in profile.mappings.filename.tolist()]
    names = [f"[{path.rpartition('/')[2]}]" if path else "<unknown>" for path in (*paths, "")]
    return [frames.setdefault(Frame(name, "", 0), len(frames)) for name in names]


class _Texts(dict[int, str]):
    """Strings of a table as text, by row, those that are asked for, each decoded once.

    UTF-8, as pprof has it; bytes that are none are spelled out, so that names stay different.
    """

    def __init__(self, strings: list[bytes]) -> None:
        super().__init__()
        self._strings = strings

    def __missing__(self, row: int) -> str:
        text = self[row] = self._strings[row].decode(errors="backslashreplace")
        return text


def default_column(header: Header) -> int:
    """The column that `go tool pprof` shows unless it is told otherwise (`SampleIndexByName("")`).

    It is the one that the profile names as its default, else the last; for a CPU profile its time.
    Raises ProfileError where there is none.
    """
    if not header.sample_types:
        raise ProfileError("it has no sample type")
    types = [sample_type.type for sample_type in header.sample_types]
    named = header.default_sample_type
    return types.index(named) if named and named in types else len(types) - 1


_GRAPH_ADVICE = "select fewer profiles, or ask for the table in place of the flame graph"


@dataclass(frozen=True, slots=True, eq=False)
class WeighedStacks:
    """One row a stack: `rows` is ragged by `offsets` (n + 1), the root first, and refers to `names`, in which
    each name is once. `values` is (n, n_sides), none below 0.
    """

    names: list[str]
    rows: Int32s
    offsets: Int64s
    values: Int64s

    @classmethod
    def of(cls, profile: Profile, column: int, budget: Budget = UNBOUNDED) -> Self:
        """All samples of a profile, with their values of one type: (n_samples, 1).

        What is negative, as in a profile that is a difference, counts as 0: it has no width. Raises
        OutputTooLarge where the stacks are more than the budget.
        """
        stacks = stacks_of(profile, budget)
        stacks.check(budget)
        numbers: dict[str, int] = {}
        number_of = np.array(
            [numbers.setdefault(frame.name, len(numbers)) for frame in stacks.frames], np.int32
        )
        offsets = offsets_of(stacks.depths)
        rows = np.empty(stacks.n_frames, np.int32)
        for chunk in stacks.chunks():
            begin = offsets[chunk.first]
            rows[begin : begin + len(chunk.rows)] = number_of[chunk.rows]
        values = np.maximum(profile.samples.values[:, column : column + 1], 0)
        return cls(list(numbers), rows, offsets, values)

    def beside(self, base: WeighedStacks, budget: Budget = UNBOUNDED) -> WeighedStacks:
        """These stacks, and after them those of a base; each has a value on its own side: (n, 2).

        Raises OutputTooLarge where both are more than the budget.
        """
        budget.check_rows(len(self.rows) + len(base.rows), FRAME_BYTES, _GRAPH_ADVICE)
        numbers = {name: number for number, name in enumerate(self.names)}
        number_of = np.array([numbers.setdefault(name, len(numbers)) for name in base.names], np.int32)
        return WeighedStacks(
            names=list(numbers),
            rows=np.concatenate((self.rows, number_of[base.rows])),
            offsets=np.concatenate((self.offsets, self.offsets[-1] + base.offsets[1:])),
            values=np.concatenate(
                (np.pad(self.values, ((0, 0), (0, 1))), np.pad(base.values, ((0, 0), (1, 0))))
            ),
        )
