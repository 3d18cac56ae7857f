"""Traces → weighted sums: what is to be known of each profile for its factor."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from operator import mul

import numpy as np

from pprof_merge.dictionary import Dictionary
from pprof_merge.errors import UnfitForWeight
from pprof_merge.headers import WEIGHING_TYPES, check_compatible
from pprof_merge.origins import Told, origins_of
from pprof_merge.picked import Picked
from pprof_merge.profile import Header, Int64s, UInt64s
from pprof_merge.sums import WeightedSums
from pprof_merge.weights import Facts, Weighting, factors

# Most stacks are sampled once or twice; so that their shares survive rounding, counts are in thousandths.
_SCALES = {b"count": 1000}
_HALF = np.uint64(32)
_LOWER_HALF = np.uint64((1 << 32) - 1)


def weighted_sums(
    weighting: Weighting, dictionary: Dictionary, profiles: Picked, told: Sequence[Told]
) -> WeightedSums:
    """For a merge of these profiles, in the order of merging, with what is told of each from outside.

    Raises UnfitForWeight where one can't be weighed so, and IncompatibleProfiles where their types differ.
    """
    if not len(profiles):
        return WeightedSums([], [])
    times, durations = profiles.times.tolist(), profiles.durations.tolist()
    for duration_nanos in durations:
        if refusal := weighting.refusal(duration_nanos):
            raise UnfitForWeight(refusal)
    header, *others = profiles.headers()
    for other in others:
        check_compatible(header, other)
    column = _column(header)
    scales = [_SCALES.get(sample_type.unit, 1) for sample_type in header.sample_types]
    facts = [
        Facts(
            total=magnitudes[column] if magnitudes else 0,
            largest=max(map(mul, magnitudes, scales), default=0),
            time_nanos=time_nanos,
            duration_nanos=duration_nanos,
            group=group,
        )
        for time_nanos, duration_nanos, magnitudes, group in zip(
            times,
            durations,
            _magnitudes(profiles, header),
            _groups(weighting.label, dictionary, profiles, told),
            strict=True,
        )
    ]
    return WeightedSums(factors(weighting, facts), scales)


def _column(header: Header) -> int:
    """The column by which Go's compiler weighs; the first where it finds none."""
    types = header.sample_types
    return next((column for column, each in enumerate(types) if each in WEIGHING_TYPES), 0)


def _magnitudes(profiles: Picked, header: Header) -> Iterator[list[int]]:
    """Of each profile the sums of its values' magnitudes, one a sample type, in halves of 32 bits."""
    for part in profiles.parts(header.sample_types):
        # As an unsigned number, also the magnitude of -2^63 is right.
        sizes = np.abs(part.chunk.values).view(np.uint64)
        upper, lower = (
            _sums(sizes >> _HALF, part.chunk.offsets),
            _sums(sizes & _LOWER_HALF, part.chunk.offsets),
        )
        for uppers, lowers in zip(upper.tolist(), lower.tolist(), strict=True):
            yield [(high << 32) + low for high, low in zip(uppers, lowers, strict=True)]


def _sums(rows: UInt64s, offsets: Int64s) -> UInt64s:
    """The sums of the rows from each offset to the next."""
    sums = np.zeros((len(offsets) - 1, rows.shape[1]), np.uint64)
    filled = np.flatnonzero(np.diff(offsets))
    for column in range(rows.shape[1]):
        sums[filled, column] = np.add.reduceat(rows[:, column], offsets[filled])
    return sums


def _groups(label: str, dictionary: Dictionary, profiles: Picked, told: Sequence[Told]) -> list[Hashable]:
    """Which instances or versions each profile is of.

    One that doesn't tell of which instance it is is an instance of its own.
    """
    if not label:
        return [None] * len(profiles)
    origins = origins_of(dictionary, profiles, told)
    if label == "version":
        return [origin.versions for origin in origins]
    return [origin.instances or number for number, origin in enumerate(origins)]
