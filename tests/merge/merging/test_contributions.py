"""Contributions: the samples and values of each profile in a merge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from pprof_merge import Collection, Profile, decode, encode


def negated(profile: Profile) -> Profile:
    return profile.replace(samples=replace(profile.samples, values=-profile.samples.values))


def swapped(profile: Profile) -> Profile:
    return profile.replace(
        header=profile.header._replace(sample_types=profile.header.sample_types[::-1]),
        samples=replace(profile.samples, values=np.ascontiguousarray(profile.samples.values[:, ::-1])),
    )


def test_contributions_add_up_to_the_merge(profiles: Path) -> None:
    """One profile has its types in another order, and two cancel out, so that samples vanish."""
    first, second, third = (decode(path.read_bytes()) for path in sorted(profiles.glob("etl-*")))
    collection = Collection()
    for profile in (first, swapped(second), third, negated(third)):
        collection.add(encode(profile))
    merged, contributions = collection.merge_traced([3, 1, 0, 2])
    assert encode(merged) == encode(collection.merge())
    added = np.zeros_like(merged.samples.values)
    n_gone = 0
    for samples, values in contributions:
        there = samples >= 0
        np.add.at(added, samples[there], values[there])
        n_gone += int(np.count_nonzero(~there))
    assert (added == merged.samples.values).all()
    assert n_gone > 0
    column = merged.header.sample_types.index(first.header.sample_types[0])
    totals = [each.values[:, column].sum() for each in contributions]
    expected = [profile.samples.values[:, 0].sum() for profile in (negated(third), second, first, third)]
    assert totals == expected
