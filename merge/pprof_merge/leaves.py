"""Leaves: whose code was running when each sample was taken, and how much each sample counts.

Where calls are inlined, that is the outermost of the functions: the one that the linker has a symbol of.
"""

from __future__ import annotations

import numpy as np

from pprof_merge.formats.call_edges import weighing_column
from pprof_merge.overlap import shares
from pprof_merge.profile import Floats, Ints, Profile


def leaf_shares(profile: Profile) -> Floats:
    """Each sample's share of the weight (n_samples). Raises UnfitForFormat where Go's compiler takes none."""
    return shares(profile.samples.values[:, weighing_column(profile.header)])


def leaf_functions(profile: Profile) -> Ints:
    """The function of each sample (n_samples): -1 where there is no stack, or no line."""
    samples = profile.samples
    leaf = samples.location_offsets[:-1]
    has_stack = samples.location_offsets[1:] > leaf
    found = np.full(len(samples), -1)
    found[has_stack] = outermost_functions(profile)[samples.locations[leaf[has_stack]]]
    return found


def outermost_functions(profile: Profile) -> Ints:
    """The function of each location's code (n_locations): -1 where it has no line."""
    lines = profile.locations.lines
    found = np.full(len(profile.locations), -1)
    has_lines = np.flatnonzero(np.diff(lines.offsets))
    found[has_lines] = lines.function[lines.offsets[has_lines + 1] - 1]
    return found
