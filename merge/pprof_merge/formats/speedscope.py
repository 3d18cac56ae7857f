"""`speedscope`: a file for https://www.speedscope.app, by its file-format-schema.json.

One profile a sample type, `"type": "sampled"`. A merge knows of no order in time, so the stacks are in
an order that keeps those together which begin with the same frames: the view of time is a flame graph.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np

from pprof_merge.formats.sample_type import default_column
from pprof_merge.formats.stacks import Frame, stacks_of
from pprof_merge.profile import Int64s, Profile, ValueType
from pprof_merge.ragged import first_appearance

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
# All that the schema knows; what is in another unit is a plain number there.
_UNITS = {b"nanoseconds", b"microseconds", b"milliseconds", b"seconds", b"bytes"}


def speedscope(profile: Profile) -> bytes:
    """The file's JSON; the sample type that it opens with is the one that `go tool pprof` shows."""
    stacks = stacks_of(profile)
    used, renumbered = first_appearance(stacks.rows)
    paths, totals = _sums(renumbered[stacks.rows], stacks.offsets, profile.samples.values)
    document = {
        "$schema": _SCHEMA,
        "shared": {"frames": [_frame(stacks.frames[row]) for row in used.tolist()]},
        "profiles": [
            _sampled(sample_type, paths, totals[:, column])
            for column, sample_type in enumerate(profile.header.sample_types)
        ],
        "activeProfileIndex": default_column(profile.header),
        "exporter": "pprof-merge",
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _frame(frame: Frame) -> dict[str, str | int]:
    """Without what the profile doesn't know."""
    optional: dict[str, str | int] = {"file": frame.file, "line": frame.start_line}
    return {"name": frame.name, **{key: value for key, value in optional.items() if value}}


def _sums(rows: Int64s, offsets: Int64s, values: Int64s) -> tuple[list[tuple[int, ...]], Int64s]:
    """The distinct stacks of ragged rows of frames, in order, and what each adds up to: (n, n_types)."""
    every = rows.tolist()
    path_of = [tuple(every[start:end]) for start, end in pairwise(offsets.tolist())]
    paths = sorted(set(path_of))
    numbers = dict(zip(paths, range(len(paths)), strict=True))
    totals = np.zeros((len(paths), values.shape[1]), np.int64)
    np.add.at(totals, np.fromiter(map(numbers.__getitem__, path_of), np.int64, len(path_of)), values)
    return paths, totals


def _sampled(sample_type: ValueType, paths: list[tuple[int, ...]], totals: Int64s) -> dict[str, Any]:
    """One profile; a weight has to be positive there."""
    weighed = np.flatnonzero(totals > 0).tolist()
    return {
        "type": "sampled",
        "name": sample_type.type.decode(errors="backslashreplace"),
        "unit": sample_type.unit.decode() if sample_type.unit in _UNITS else "none",
        "startValue": 0,
        "endValue": sum(weights := totals[weighed].tolist()),
        "samples": [paths[row] for row in weighed],
        "weights": weights,
    }
