"""Timeline: how much of each step of time a function, package or file takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from pprof_merge.analysis.latency import ALL_LATENCIES, LatencyRange, samples_in
from pprof_merge.analysis.stacks import Frame, stacks_of
from pprof_merge.analysis.totals import are_of_base, total_sizes
from pprof_merge.arrays import Bools, Int64s
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.merging.collection import Collection
from pprof_merge.merging.incremental import Contribution
from pprof_merge.merging.snapshots import Kind, Snapshots
from pprof_merge.profile import Header, Profile, ValueType


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
        snapshots: Snapshots | None = None,
        kinds: Mapping[ValueType, Kind] = MappingProxyType({}),
        named: Callable[[Profile], Profile] = lambda merged: merged,
    ) -> Timeline:
        """Return the timeline of some profiles of a collection; `steps` has the step of each.

        Only samples with these `latencies` count. With `snapshots`, each sample type is shown by its kind.
        `named` returns the merge with more names, and with the same samples, row by row.

        Raises as `Collection.merge_traced` does, and OutputTooLarge if there are too many functions.
        """
        merged, contributions = collection.merge_traced(numbers, of_sizes=True)
        is_flat, is_cum = _chosen_samples(named(merged), is_chosen, budget)
        # What is in no sample has no latency.
        is_taken = np.append(samples_in(merged, latencies), latencies.is_everything)
        n_types = len(merged.header.sample_types)
        parts = np.zeros((3, len(steps), n_types), np.int64)
        for part, chosen in zip(parts, (is_taken, is_flat & is_taken, is_cum & is_taken), strict=True):
            for row, contribution in enumerate(contributions):
                part[row] = contribution.values[chosen[contribution.samples]].sum(axis=0)
        of_profile, n_steps = np.array(steps, np.int64), max(steps, default=-1) + 1
        sums = np.zeros((3, n_steps, n_types), np.int64)
        if snapshots is not None:
            for column, sample_type in enumerate(merged.header.sample_types):
                of_type = parts[:, :, column].T
                sums[:, :, column] = snapshots.in_steps(kinds[sample_type], of_type, of_profile, n_steps).T
            return cls(merged.header, *sums)
        for part, sum_ in zip(parts, sums, strict=True):
            np.add.at(sum_, of_profile, part)
        is_of_base = np.append(are_of_base(merged), False)
        if is_of_base.any() or any((each.values < 0).any() for each in contributions):
            of_step: defaultdict[int, list[Contribution]] = defaultdict(list)
            for step, contribution in zip(steps, contributions, strict=True):
                of_step[step].append(contribution)
            for step, every in of_step.items():
                sums[0][step] = _total(every, is_taken, is_of_base)
        return cls(merged.header, *sums)


def _total(contributions: Sequence[Contribution], is_taken: Bools, is_of_base: Bools) -> Int64s:
    """Return the total of the merge of some profiles, (n_types), whose values may be negative."""
    samples = np.concatenate([each.samples for each in contributions])
    values = np.concatenate([each.values for each in contributions])
    rows, row_of = np.unique(samples, return_inverse=True)
    sums = np.zeros((len(rows), values.shape[1]), np.int64)
    np.add.at(sums, row_of, values)
    kept = is_taken[rows]
    return total_sizes(sums[kept], is_of_base[rows[kept]])


def _chosen_samples(
    profile: Profile, is_chosen: Callable[[Frame], bool], budget: Budget
) -> tuple[Bools, Bools]:
    """Return whether the leaf, and whether any frame, of each sample is chosen: (n_samples + 1) each.

    The last entry is False. The index -1 refers to it: a contribution has it for values that are all 0 in
    the merge, and so are in no sample.
    """
    stacks = stacks_of(profile, budget)
    chosen = np.array([is_chosen(frame) for frame in stacks.frames], np.bool_)
    is_flat, is_cum = stacks.contain(chosen)
    return np.append(is_flat, False), np.append(is_cum, False)
