"""`json`: the table of `go tool pprof -top`, whole and with every sample type.

A function's `flat` value is that of the samples in which it is the leaf, `cum` that of all which it is
in, however often. Functions are told apart by name, as there.
"""

from __future__ import annotations

import json

import numpy as np

from pprof_merge.formats.sample_type import default_column
from pprof_merge.formats.stacks import Stacks, stacks_of
from pprof_merge.profile import Int64s, Profile, ValueType


def top(profile: Profile) -> bytes:
    """JSON: the header's numbers, totals, and every function, the one with most of its own first.

    What is a list has an entry for each sample type; times in ns.
    """
    header, values = profile.header, profile.samples.values
    stacks = stacks_of(profile)
    names, flat, cum = _table(stacks, values)
    column = default_column(header)
    order = sorted(range(len(names)), key=lambda row: (-flat[row][column], -cum[row][column], names[row]))
    document = {
        "sample_types": [_type(sample_type) for sample_type in header.sample_types],
        "default_sample_type": column,
        "period_type": _type(header.period_type),
        "period": header.period,
        "time_nanos": header.time_nanos,
        "duration_nanos": header.duration_nanos,
        "stacks": len(values),
        "total": values.sum(axis=0).tolist(),
        "functions": [{"name": names[row], "flat": flat[row], "cum": cum[row]} for row in order],
    }
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def _table(stacks: Stacks, values: Int64s) -> tuple[list[str], list[list[int]], list[list[int]]]:
    """Names, and a row of values for each: flat and cum."""
    numbers: dict[str, int] = {}
    name_of = np.array([numbers.setdefault(f.name, len(numbers)) for f in stacks.frames], np.int64)
    rows = name_of[stacks.rows]
    counts = np.diff(stacks.offsets)
    flat = np.zeros((len(numbers), values.shape[1]), np.int64)
    cum = np.zeros_like(flat)
    framed = np.flatnonzero(counts)
    np.add.at(flat, rows[stacks.offsets[1:][framed] - 1], values[framed])
    # Each pair of a function and a sample once, so that recursion doesn't count twice.
    pairs = np.sort(rows * len(values) + np.repeat(np.arange(len(values)), counts))
    function, sample = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], max(len(values), 1))
    np.add.at(cum, function, values[sample])
    seen = np.flatnonzero(np.bincount(rows, minlength=len(numbers))).tolist()
    names = list(numbers)
    return [names[row] for row in seen], flat[seen].tolist(), cum[seen].tolist()


def _type(value_type: ValueType) -> dict[str, str]:
    return {
        "type": value_type.type.decode(errors="backslashreplace"),
        "unit": value_type.unit.decode(errors="backslashreplace"),
    }
