"""A timeline: how much of each span of time a function, package or file takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pprof_merge.analysis.stacks import Frame, stacks_of
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.merging.collection import Collection
from pprof_merge.profile import Bools, Header, Int64s, Profile


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """`total`, and of it `flat` and `cum` as `TopTable` has them: each (n_steps, n_types).

    The types are those of the `header`, which is that of the merge of all.
    """

    header: Header
    total: Int64s
    flat: Int64s
    cum: Int64s

    @classmethod
    def of(
        cls,
        collection: Collection,
        numbers: Sequence[int],
        steps: Sequence[int],
        is_meant: Callable[[Frame], bool],
        budget: Budget = UNBOUNDED,
    ) -> Timeline:
        """Of some profiles, which are in these steps. Raises as `Collection.merge_traced` does, and
        OutputTooLarge where there are too many functions.
        """
        merged, contributions = collection.merge_traced(numbers)
        is_flat, is_cum = _meant(merged, is_meant, budget)
        every = np.ones_like(is_flat)
        shape = (max(steps, default=-1) + 1, len(merged.header.sample_types))
        sums = [np.zeros(shape, np.int64) for _ in range(3)]
        for step, contribution in zip(steps, contributions, strict=True):
            for found, chosen in zip(sums, (every, is_flat, is_cum), strict=True):
                found[step] += contribution.values[chosen[contribution.samples]].sum(axis=0)
        return cls(merged.header, *sums)


def _meant(profile: Profile, is_meant: Callable[[Frame], bool], budget: Budget) -> tuple[Bools, Bools]:
    """Whether the leaf, and whether any frame, of each sample is meant: (n_samples + 1).

    Not so the last, which -1 stands for: what is in no sample since it comes to 0 in the merge.
    """
    stacks = stacks_of(profile, budget)
    meant = np.array([is_meant(frame) for frame in stacks.frames], np.bool_)
    is_flat, is_cum = stacks.are_met(meant)
    return np.append(is_flat, False), np.append(is_cum, False)
