"""Weighing the profiles of a selection: what their factors depend on, and sums with these factors."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from operator import mul

import numpy as np

from pprof_merge.arrays import Int64s, UInt64s
from pprof_merge.errors import UnfitForWeight
from pprof_merge.merging.dictionary import Dictionary
from pprof_merge.merging.headers import PGO_SAMPLE_TYPES, check_compatible
from pprof_merge.merging.origins import GivenLabels, origins_of
from pprof_merge.merging.selection import SelectedProfiles
from pprof_merge.merging.sums import WeightedSums
from pprof_merge.merging.weights import Weighting, WeightInput, factors
from pprof_merge.profile import Header

# Most stacks are sampled once or twice: counts are multiplied by 1,000, so that rounding loses little.
_SCALES = {b"count": 1000}
# The key, among the labels known of a profile, of the service by which it is weighed.
SERVICE = "__service__"
_HALF = np.uint64(32)
_LOWER_HALF = np.uint64((1 << 32) - 1)


def weighted_sums(
    weighting: Weighting,
    dictionary: Dictionary,
    profiles: SelectedProfiles,
    given: Sequence[GivenLabels],
    times: Sequence[int],
) -> WeightedSums:
    """Return empty sums for the merge of these profiles, which are in the order of merging.

    `given` are the labels known of each profile, and `times` their times in ns since 1970. Raises
    UnfitForWeight if a profile can't be weighed, and IncompatibleProfiles if the types of the profiles
    differ.
    """
    if not len(profiles):
        return WeightedSums([], [])
    durations = profiles.durations.tolist()
    for duration_nanos in durations:
        if refusal := weighting.refusal(duration_nanos):
            raise UnfitForWeight(refusal)
    header, *others = profiles.headers()
    for other in others:
        check_compatible(header, other)
    column = _column(header)
    scales = [_SCALES.get(sample_type.unit, 1) for sample_type in header.sample_types]
    inputs = [
        WeightInput(
            total=magnitudes[column] if magnitudes else 0,
            largest=max(map(mul, magnitudes, scales), default=0),
            time_nanos=time_nanos,
            duration_nanos=duration_nanos,
            group=(labels.get(SERVICE, ""), group),
            service=labels.get(SERVICE, ""),
        )
        for time_nanos, duration_nanos, magnitudes, group, labels in zip(
            times,
            durations,
            _magnitudes(profiles, header),
            _groups(weighting.label, dictionary, profiles, given),
            given,
            strict=True,
        )
    ]
    return WeightedSums(factors(weighting, inputs), scales)


def _column(header: Header) -> int:
    """Return the column that Go's compiler reads; the first column if it would find none."""
    types = header.sample_types
    return next((column for column, each in enumerate(types) if each in PGO_SAMPLE_TYPES), 0)


def _magnitudes(profiles: SelectedProfiles, header: Header) -> Iterator[list[int]]:
    """Yield, for each profile, the sum of its values' magnitudes in each sample type.

    The upper and lower 32 bits are added up separately, so that no sum overflows.
    """
    for part in profiles.parts(header.sample_types):
        # As uint64, the magnitude of -2^63 is correct too.
        sizes = np.abs(part.chunk.values).view(np.uint64)
        upper, lower = (
            _sums(sizes >> _HALF, part.chunk.offsets),
            _sums(sizes & _LOWER_HALF, part.chunk.offsets),
        )
        for uppers, lowers in zip(upper.tolist(), lower.tolist(), strict=True):
            yield [(high << 32) + low for high, low in zip(uppers, lowers, strict=True)]


def _sums(rows: UInt64s, offsets: Int64s) -> UInt64s:
    """Return the sums (n, n_types) of the rows from each offset (n + 1) to the next."""
    sums = np.zeros((len(offsets) - 1, rows.shape[1]), np.uint64)
    filled = np.flatnonzero(np.diff(offsets))
    for column in range(rows.shape[1]):
        sums[filled, column] = np.add.reduceat(rows[:, column], offsets[filled])
    return sums


def _groups(
    label: str, dictionary: Dictionary, profiles: SelectedProfiles, given: Sequence[GivenLabels]
) -> list[Hashable]:
    """Return the instances or versions of each profile. A profile without an instance is one of its own."""
    if not label:
        return [None] * len(profiles)
    origins = origins_of(dictionary, profiles, given)
    if label == "version":
        return [origin.versions for origin in origins]
    return [origin.instances or number for number, origin in enumerate(origins)]
