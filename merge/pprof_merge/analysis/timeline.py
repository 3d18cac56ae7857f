"""Timeline: how much of each step of time a function, package or file takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pprof_merge.analysis.latency import ALL_LATENCIES, LatencyRange, samples_in
from pprof_merge.analysis.stacks import Frame, stacks_of
from pprof_merge.arrays import Bools, Int64s
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.merging.collection import Collection
from pprof_merge.profile import Header, Profile


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """The values of each step of time: `total`, and the `flat` and `cum` of chosen frames as in `TopTable`.

    Each is (n_steps, n_types). `header` is that of the merge of all profiles and has the sample types.
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
        is_chosen: Callable[[Frame], bool],
        budget: Budget = UNBOUNDED,
        *,
        latencies: LatencyRange = ALL_LATENCIES,
    ) -> Timeline:
        """Return the timeline of some profiles of a collection; `steps` has the step of each.

        Only samples with these `latencies` count.

        Raises as `Collection.merge_traced` does, and OutputTooLarge if there are too many functions.
        """
        merged, contributions = collection.merge_traced(numbers)
        is_flat, is_cum = _chosen_samples(merged, is_chosen, budget)
        # What is in no sample has no latency.
        is_taken = np.append(samples_in(merged, latencies), latencies.is_everything)
        shape = (max(steps, default=-1) + 1, len(merged.header.sample_types))
        sums = [np.zeros(shape, np.int64) for _ in range(3)]
        for step, contribution in zip(steps, contributions, strict=True):
            for found, chosen in zip(sums, (is_taken, is_flat & is_taken, is_cum & is_taken), strict=True):
                found[step] += contribution.values[chosen[contribution.samples]].sum(axis=0)
        return cls(merged.header, *sums)


def _chosen_samples(
    profile: Profile, is_chosen: Callable[[Frame], bool], budget: Budget
) -> tuple[Bools, Bools]:
    """Return whether the leaf, and whether any frame, of each sample is chosen: (n_samples + 1) each.

    The last entry is False. The index -1 refers to it: a contribution has it for values that add up to 0 in
    the merge, and so are in no sample.
    """
    stacks = stacks_of(profile, budget)
    chosen = np.array([is_chosen(frame) for frame in stacks.frames], np.bool_)
    is_flat, is_cum = stacks.contain(chosen)
    return np.append(is_flat, False), np.append(is_cum, False)
