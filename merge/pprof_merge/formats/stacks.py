"""Stacks as people read them: from the root to the leaf, a frame for every function, inlined ones too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pprof_merge.profile import Int64s, Profile
from pprof_merge.ragged import offsets_of, spans, take_rows


class Frame(NamedTuple):
    """A function. Without a name it is named for its binary, `[service]`, or `<unknown>`, as pprof does."""

    name: str
    file: str
    start_line: int


@dataclass(frozen=True, slots=True, eq=False)
class Stacks:
    """One row a sample, in the profile's order: `rows` is ragged by `offsets` (n_samples + 1), the root
    first, and refers to `frames`, in which each frame is once. A sample without locations has none.
    """

    frames: list[Frame]
    rows: Int64s
    offsets: Int64s


def stacks_of(profile: Profile) -> Stacks:
    """The stacks of all samples."""
    frames: dict[Frame, int] = {}
    location_frames, location_offsets = _locations(profile, frames)
    index, offsets = take_rows(location_offsets, profile.samples.locations)
    starts = offsets[profile.samples.location_offsets]
    # Both levels, a sample's locations and a location's lines, have the leaf first: one reversal does.
    mirrored = np.repeat(starts[:-1] + starts[1:] - 1, np.diff(starts)) - np.arange(len(index))
    return Stacks(list(frames), location_frames[index[mirrored]], starts)


def _locations(profile: Profile, frames: dict[Frame, int]) -> tuple[Int64s, Int64s]:
    """The frames of each location, ragged, the innermost first; at least one for each."""
    lines = profile.locations.lines
    named = np.array(_function_frames(profile, frames), np.int64)
    n_lines = np.diff(lines.offsets)
    counts = np.maximum(n_lines, 1)
    offsets = offsets_of(counts)
    binary = np.array(_binary_frames(profile, frames), np.int64)
    found = np.repeat(binary[profile.locations.mapping], counts)
    known = named[lines.function]
    at = spans(offsets[:-1], n_lines)
    found[at[known >= 0]] = known[known >= 0]
    return found, offsets


def _function_frames(profile: Profile, frames: dict[Frame, int]) -> list[int]:
    """The frame of each function, -1 for those without a name."""
    functions, texts = profile.functions, [_text(string) for string in profile.strings]
    columns = (functions.name.tolist(), functions.filename.tolist(), functions.start_line.tolist())
    return [
        frames.setdefault(Frame(texts[name], texts[file], line), len(frames)) if texts[name] else -1
        for name, file, line in zip(*columns, strict=True)
    ]


def _binary_frames(profile: Profile, frames: dict[Frame, int]) -> list[int]:
    """The frame of what is in a mapping and has no name, for each mapping and, at the end, for none."""
    paths = [_text(profile.strings[row]) for row in profile.mappings.filename.tolist()]
    names = [f"[{path.rpartition('/')[2]}]" if path else "<unknown>" for path in (*paths, "")]
    return [frames.setdefault(Frame(name, "", 0), len(frames)) for name in names]


def _text(string: bytes) -> str:
    """UTF-8, as pprof has it; bytes that are none are spelled out, so that names stay different."""
    return string.decode(errors="backslashreplace")
