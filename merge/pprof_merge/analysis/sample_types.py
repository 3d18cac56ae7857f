"""A part of what a profile measures: some of its sample types, without labels that number events."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from pprof_merge.columns.ragged import offsets_of, rows_of_indexes
from pprof_merge.merging.batch import merge
from pprof_merge.profile import Profile
from pprof_merge.profile.records import Labels


def focus_types(profile: Profile, columns: Sequence[int], without_labels: Collection[bytes] = ()) -> Profile:
    """Return a profile with these columns of values, the first of which is its default sample type.

    Labels with the keys `without_labels` are left out. Samples that are the same then are one, and those
    without a value are left out, with what only they use.
    """
    header = profile.header
    types = tuple(header.sample_types[column] for column in columns)
    samples = replace(
        profile.samples,
        values=np.ascontiguousarray(profile.samples.values[:, [*columns]]),
        labels=_without(profile, without_labels),
    )
    header = header._replace(sample_types=types, default_sample_type=types[0].type)
    return merge([profile.replace(header=header, samples=samples)])


def _without(profile: Profile, keys: Collection[bytes]) -> Labels:
    labels = profile.samples.labels
    rows = [row for row, string in enumerate(profile.strings) if string in keys]
    is_kept = np.isin(labels.key, rows, invert=True)
    owners = rows_of_indexes(labels.offsets, np.flatnonzero(is_kept))
    return Labels(
        key=labels.key[is_kept],
        text=labels.text[is_kept],
        number=labels.number[is_kept],
        unit=labels.unit[is_kept],
        offsets=offsets_of(np.bincount(owners, minlength=len(profile.samples))),
    )
