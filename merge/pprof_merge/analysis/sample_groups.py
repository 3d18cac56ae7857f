"""Groups of samples by the value of one of their labels, as `go tool pprof -tagroot` shows them."""

from __future__ import annotations

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


def group_name(key: str, value: str) -> str:
    """Return the name of the group with a value of a label; of those without the label, if it is empty."""
    return f"{key}={value}" if value else f"without {key}"


def others_name(key: str) -> str:
    """Return the name of the group of all values that have none of their own."""
    return f"other values of {key}"


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
    group_of = np.empty(len(sizes), np.int64)
    for row in range(len(sizes)):
        group_of[row] = numbers.setdefault(values.get(row, ""), len(numbers))
    return _largest(key, [*numbers], group_of, sizes)


def _largest(key: str, values: list[str], group_of: Int64s, sizes: Int64s) -> SampleGroups:
    """Return groups of which only the largest have names of their own."""
    names = [group_name(key, value) for value in values]
    if len(values) <= MOST_GROUPS:
        return SampleGroups(names, group_of)
    totals = np.zeros(len(values), np.int64)
    np.add.at(totals, group_of, sizes)
    largest = np.argsort(-totals, kind="stable")[: MOST_GROUPS - 1]
    renumbered = np.full(len(values), len(largest), np.int64)
    renumbered[largest] = np.arange(len(largest))
    return SampleGroups(
        [*(names[number] for number in largest.tolist()), others_name(key)], renumbered[group_of]
    )
