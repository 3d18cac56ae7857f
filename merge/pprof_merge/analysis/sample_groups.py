"""Groups of samples by the value of one of their labels, as `go tool pprof -tagroot` shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pprof_merge.arrays import Int64s
from pprof_merge.columns.ragged import rows_of_indexes
from pprof_merge.profile import Profile

# Groups are for people: the largest have names of their own.
MOST_GROUPS = 20


class SampleGroups(NamedTuple):
    """The names of the groups, such as `thread=worker`, and the group of each sample (n_samples,)."""

    names: list[str]
    group_of: Int64s


def group_samples(profile: Profile, key: str, column: int) -> SampleGroups:
    """Return the groups of a profile's samples by a label: the largest ones by a column, and all others.

    The values of a sample that has the label several times are joined by commas. A number has its unit.
    """
    labels, strings = profile.samples.labels, profile.strings
    wanted = key.encode()
    keys = np.array([text == wanted for text in strings], np.bool_)
    at = np.flatnonzero(keys[labels.key])
    values = dict[int, str]()
    for row, label in zip(rows_of_indexes(labels.offsets, at).tolist(), at.tolist(), strict=True):
        text, unit = int(labels.text[label]), strings[labels.unit[label]]
        written = strings[text] if text >= 0 else b"%d%b" % (labels.number[label], unit)
        shown = written.decode(errors="backslashreplace")
        values[row] = f"{values[row]},{shown}" if row in values else shown
    sizes = np.abs(profile.samples.values[:, column])
    numbers: dict[str, int] = {}
    value_of = np.empty(len(sizes), np.int64)
    for row in range(len(sizes)):
        value_of[row] = numbers.setdefault(values.get(row, ""), len(numbers))
    return largest_groups(key, [*numbers], value_of, sizes)


def largest_groups(key: str, values: Sequence[str], value_of: Int64s, sizes: Int64s) -> SampleGroups:
    """Return the groups of what has one of the values of a label, the largest first, by the sums of sizes.

    `value_of` (n,) are indexes into `values`, of which an empty one is that of no label; `sizes` are (n,).
    Beyond the largest groups, all others are one.
    """
    totals = np.zeros(len(values), np.int64)
    np.add.at(totals, value_of, sizes)
    order = np.argsort(-totals, kind="stable").tolist()
    own = order if len(order) <= MOST_GROUPS else order[: MOST_GROUPS - 1]
    names = [f"{key}={values[number]}" if values[number] else f"without {key}" for number in own]
    if len(own) < len(order):
        names.append(f"other values of {key}")
    renumbered = np.full(len(values), len(own), np.int64)
    renumbered[own] = np.arange(len(own))
    return SampleGroups(names, renumbered[value_of])
