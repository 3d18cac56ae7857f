"""Focus: the part of a profile with some of its samples, such as those below a chain of calls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pprof_merge.analysis.stacks import stacks_of
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.merging.batch import merge
from pprof_merge.profile import Profile


def focus_calls(profile: Profile, calls: Sequence[str], budget: Budget = UNBOUNDED) -> Profile:
    """Return a profile with the samples whose stacks begin with these functions, the root first.

    It has nothing that only other samples use; without `calls` it is the profile itself. Raises
    OutputTooLarge if the functions take more than the budget.
    """
    if not calls:
        return profile
    stacks = stacks_of(profile, budget)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(calls))}
    number_of = np.array([numbers.get(frame.name, -1) for frame in stacks.frames], np.int64)
    rows = [np.zeros(0, np.int64)]
    for chunk in stacks.chunks():
        kept = np.flatnonzero(np.diff(chunk.offsets) >= len(calls))
        for depth, name in enumerate(calls):
            kept = kept[number_of[chunk.rows[chunk.offsets[kept] + depth]] == numbers[name]]
        rows.append(chunk.first + kept)
    return merge([profile.replace(samples=profile.samples.take(np.concatenate(rows)))])
