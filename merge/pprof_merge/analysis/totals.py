"""Totals: what the shares of a view are of, as `computeTotal` of google/pprof's `report.go` has it.

It is the sum of the samples' absolute values, since those of a difference of two profiles are negative, too.
Of a difference that `go tool pprof -diff_base` has saved, it is that of the samples of the base.
"""

from __future__ import annotations

import numpy as np

from pprof_merge.arrays import Bools, Int64s
from pprof_merge.columns.ragged import rows_of_indexes
from pprof_merge.profile import Profile

# The label of a base's samples: its key and its text.
_BASE = b"pprof::base", b"true"


def totals_of(profile: Profile) -> Int64s:
    """Return the total of each sample type, (n_types)."""
    return total_sizes(profile.samples.values, are_of_base(profile))


def total_sizes(values: Int64s, is_of_base: Bools) -> Int64s:
    """Return the total of samples (n, n_types), of which some may be those of a base: (n_types)."""
    sizes = np.abs(values)
    total: Int64s = sizes.sum(axis=0)
    if not is_of_base.any():
        return total
    of_base = sizes[is_of_base].sum(axis=0)
    return np.where(of_base > 0, of_base, total)


def are_of_base(profile: Profile) -> Bools:
    """Return whether each sample is one of the base of a difference, (n_samples)."""
    found = np.zeros(len(profile.samples), np.bool_)
    if _BASE[0] in profile.strings and _BASE[1] in profile.strings:
        labels = profile.samples.labels
        key, text = (
            np.isin(of, _rows(profile, name))
            for of, name in zip((labels.key, labels.text), _BASE, strict=True)
        )
        found[rows_of_indexes(labels.offsets, np.flatnonzero(key & text))] = True
    return found


def _rows(profile: Profile, name: bytes) -> list[int]:
    return [row for row, string in enumerate(profile.strings) if string == name]
