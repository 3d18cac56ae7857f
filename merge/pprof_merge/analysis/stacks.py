"""Stacks as people read them: from the root to the leaf, a frame for every call, inlined calls included."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pprof_merge.analysis.shown import as_shown
from pprof_merge.analysis.trimmed_paths import usually_trimmed
from pprof_merge.arrays import Bools, Int32s, Int64s
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.columns.ragged import offsets_of, spans, take_rows
from pprof_merge.errors import ProfileError
from pprof_merge.profile import Header, Profile
from pprof_merge.profile.records import Samples

# A chunk has at most this many frames, or one stack: a location may stand for 250 frames.
_CHUNK_FRAMES = 1 << 18
# Memory, in bytes, of one frame of a stack, and of one function in Python's tables.
FRAME_BYTES = 4
_FUNCTION_BYTES = 128
_FORMAT_ADVICE = (
    "select fewer profiles, or take the format pprof or go, which don't list the frames of each stack"
)


class Frame(NamedTuple):
    """A function in a stack. Unnamed code has its binary's name, `[service]`, or `<unknown>`, as in pprof."""

    name: str
    file: str
    start_line: int


class StackRows(NamedTuple):
    """The stacks of n consecutive samples from sample `first` on.

    `rows` are rows of the frames, ragged by `offsets` (n + 1), the root first. A sample without locations has
    no frame. `slots` has for each of them which frame of which location it is.
    """

    first: int
    rows: Int32s
    offsets: Int64s
    slots: Int64s

    @property
    def samples(self) -> slice:
        """Return the range of the samples that have these stacks."""
        return slice(self.first, self.first + len(self.offsets) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Stacks:
    """The stacks of all samples of a profile.

    `frames` are the distinct frames, `depths` (n_samples) the number of frames in each stack. The frames of
    locations are ragged, the innermost first; each location has at least one. `slot_frames` (n_slots) has
    them one after another, and `slot_lines` (n_slots) the line that each is at, 0 if it is not known.
    `binaries` (n_frames) are the names of the files that frames are in, empty if that is not known.
    `system_names` are the mangled names, one a line, of the functions whose names are others, by these.
    """

    frames: list[Frame]
    depths: Int64s
    slot_frames: Int32s
    slot_lines: Int64s
    binaries: list[str]
    system_names: dict[str, str]
    _samples: Samples
    _location_offsets: Int64s

    @property
    def n_frames(self) -> int:
        """Return the number of frames in all stacks together."""
        return int(self.depths.sum())

    def check(self, budget: Budget) -> None:
        """Raise OutputTooLarge if the frames of all stacks together take more memory than the budget."""
        budget.check_rows(self.n_frames, FRAME_BYTES, _FORMAT_ADVICE)

    def chunks(self) -> Iterator[StackRows]:
        """Yield all stacks in the profile's order, a bounded number of frames at a time."""
        n_samples = len(self.depths)
        ends = np.cumsum(self.depths)
        first = 0
        while first < n_samples:
            before = int(ends[first - 1]) if first else 0
            end = int(np.searchsorted(ends, before + _CHUNK_FRAMES, side="right"))
            end = min(max(end, first + 1), n_samples)
            slots = self._slots(first, end)
            yield StackRows(first, self.slot_frames[slots], offsets_of(self.depths[first:end]), slots)
            first = end

    def only(self, rows: Int64s) -> Stacks:
        """Return the stacks of the samples in these rows."""
        return replace(self, depths=self.depths[rows], _samples=self._samples.take(rows))

    def used(self) -> Bools:
        """Return whether each frame is in a stack, (n_frames)."""
        in_stack = np.zeros(len(self._location_offsets) - 1, np.bool_)
        in_stack[self._samples.locations] = True
        used = np.zeros(len(self.frames), np.bool_)
        used[self.slot_frames[np.repeat(in_stack, np.diff(self._location_offsets))]] = True
        return used

    def outermost_slots(self) -> Bools:
        """Return whether each slot is that of a call that isn't inlined, (n_slots)."""
        is_outermost = np.zeros(len(self.slot_frames), np.bool_)
        is_outermost[self._location_offsets[1:] - 1] = True
        return is_outermost

    def leaves(self) -> Int32s:
        """Return the row of each stack's leaf in the frames, -1 for a stack without a frame: (n_samples)."""
        innermost = self.slot_frames[self._location_offsets[:-1]]
        filled, starts = self._filled()
        leaves = np.full(len(self.depths), -1, np.int32)
        leaves[filled] = innermost[self._samples.locations[starts]]
        return leaves

    def contain(self, chosen: Bools) -> tuple[Bools, Bools]:
        """Return whether the leaf, and whether any frame, of each stack is chosen: (n_samples) each.

        `chosen` is (n_frames). It doesn't list the frames of the stacks.
        """
        offsets, samples = self._location_offsets, self._samples
        in_location = chosen[self.slot_frames]
        is_innermost = in_location[offsets[:-1]]
        is_any = np.logical_or.reduceat(in_location, offsets[:-1]) if len(offsets) > 1 else is_innermost
        filled, starts = self._filled()
        is_leaf = np.zeros(len(self.depths), np.bool_)
        is_in = is_leaf.copy()
        if len(filled):
            is_leaf[filled] = is_innermost[samples.locations[starts]]
            is_in[filled] = np.logical_or.reduceat(is_any[samples.locations], starts)
        return is_leaf, is_in

    def _filled(self) -> tuple[Int64s, Int64s]:
        """Return the rows of the samples with locations, and where the locations of each begin."""
        offsets = self._samples.location_offsets
        filled = np.flatnonzero(np.diff(offsets))
        return filled, offsets[:-1][filled]

    def _slots(self, first: int, end: int) -> Int64s:
        samples = self._samples
        bounds = samples.location_offsets[first : end + 1]
        locations = samples.locations[bounds[0] : bounds[-1]]
        index, offsets = take_rows(self._location_offsets, locations)
        starts = offsets[bounds - bounds[0]]
        # A sample's locations and a location's lines both have the leaf first: one reversal orders both.
        mirrored = np.repeat(starts[:-1] + starts[1:] - 1, np.diff(starts)) - np.arange(len(index))
        slots: Int64s = index[mirrored]
        return slots


def stacks_of(profile: Profile, budget: Budget = UNBOUNDED) -> Stacks:
    """Return the stacks of all samples as views show them.

    Raises OutputTooLarge if the functions take more than the budget.
    """
    profile = as_shown(profile)
    budget.check_rows(len(profile.functions), _FUNCTION_BYTES, _FORMAT_ADVICE)
    frames: dict[Frame, int] = {}
    slot_frames, slots_of_lines, location_offsets = _locations(profile, frames)
    slot_lines = np.zeros(len(slot_frames), np.int64)
    slot_lines[slots_of_lines] = profile.locations.lines.line
    depths = _depths(profile.samples, np.diff(location_offsets))
    return Stacks(
        frames=[*frames],
        depths=depths,
        slot_frames=slot_frames,
        slot_lines=slot_lines,
        binaries=_binaries_of_frames(profile, slot_frames, location_offsets, len(frames)),
        system_names=_system_names(profile),
        _samples=profile.samples,
        _location_offsets=location_offsets,
    )


def _system_names(profile: Profile) -> dict[str, str]:
    """Return the names that functions have in the system, one a line, by other names that are shown."""
    functions, texts = profile.functions, _Texts(profile.strings)
    rows = np.flatnonzero((functions.system_name != functions.name) & (functions.system_name > 0))
    pairs = zip(functions.name[rows].tolist(), functions.system_name[rows].tolist(), strict=True)
    found = defaultdict[str, dict[str, None]](dict)
    for name, system_name in pairs:
        found[texts[name]][texts[system_name]] = None
    return {name: "\n".join(each) for name, each in found.items()}


def _depths(samples: Samples, counts: Int64s) -> Int64s:
    """Return the number of frames in each sample's stack, from those of each location: (n_samples)."""
    filled = np.flatnonzero(np.diff(samples.location_offsets))
    depths = np.zeros(len(samples), np.int64)
    if len(filled):
        per_location = counts.astype(np.int32).take(samples.locations)
        depths[filled] = np.add.reduceat(per_location, samples.location_offsets[:-1][filled], dtype=np.int64)
    return depths


def _locations(profile: Profile, frames: dict[Frame, int]) -> tuple[Int32s, Int64s, Int64s]:
    """Return the frames of each location, ragged, the innermost first; each location has at least one.

    Between the frames and their offsets it returns where among them the frame of each line is, (n_lines).

    Adds new frames to `frames`, which has the number of each.
    """
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
    return found, at, offsets


def _function_frames(profile: Profile, frames: dict[Frame, int]) -> list[int]:
    """Return the number of each function's frame, -1 for a function without a name."""
    functions, texts = profile.functions, _Texts(profile.strings)
    columns = (functions.name.tolist(), functions.filename.tolist(), functions.start_line.tolist())
    return [
        frames.setdefault(Frame(texts[name], usually_trimmed(texts[file]), line), len(frames))
        if texts[name]
        else -1
        for name, file, line in zip(*columns, strict=True)
    ]


def _binary_frames(profile: Profile, frames: dict[Frame, int]) -> list[int]:
    """Return the number of the frame for unnamed code in each mapping; the last is for code in no mapping."""
    names = [f"[{binary}]" if binary else "<unknown>" for binary in _binaries(profile)]
    return [frames.setdefault(Frame(name, "", 0), len(frames)) for name in names]


def _binaries(profile: Profile) -> list[str]:
    """Return the name of each mapping's file, without its folder; the last is empty, for no mapping."""
    texts = _Texts(profile.strings)
    return [*(texts[row].rpartition("/")[2] for row in profile.mappings.filename.tolist()), ""]


def _binaries_of_frames(
    profile: Profile, slot_frames: Int32s, location_offsets: Int64s, n_frames: int
) -> list[str]:
    """Return the binary of each frame, (n_frames): the one in which it is first, if it is in several."""
    mapping_of_slot = np.repeat(profile.locations.mapping, np.diff(location_offsets))
    frames, first = np.unique(slot_frames, return_index=True)
    mapping = np.full(n_frames, -1, np.int64)
    mapping[frames] = mapping_of_slot[first]
    binaries = _binaries(profile)
    return [binaries[row] for row in mapping.tolist()]


class _Texts(dict[int, str]):
    """Strings of a string table as text, by row, each decoded when it is first used.

    The encoding is UTF-8, as in pprof. Invalid bytes are escaped, so that different names stay different.
    """

    def __init__(self, strings: list[bytes]) -> None:
        super().__init__()
        self._strings = strings

    def __missing__(self, row: int) -> str:
        text = self[row] = self._strings[row].decode(errors="backslashreplace")
        return text


def default_column(header: Header) -> int:
    """Return the column that `go tool pprof` shows by default (`SampleIndexByName("")`).

    It is the profile's default sample type, else the last one: for a CPU profile, its time. Raises
    ProfileError if the profile has no sample type.
    """
    if not header.sample_types:
        raise ProfileError("it has no sample type")
    types = [sample_type.type for sample_type in header.sample_types]
    named = header.default_sample_type
    return types.index(named) if named and named in types else len(types) - 1
