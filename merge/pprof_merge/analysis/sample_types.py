"""The parts of what a profile measures: some of its sample types each, without labels that number events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from pprof_merge.arrays import Int32s, Int64s
from pprof_merge.columns.ragged import offsets_of, rows_of_indexes
from pprof_merge.columns.views import view32, view64
from pprof_merge.merging.assembly import WHOLE, Totals, Uses, assemble, totals_of
from pprof_merge.merging.numbering import Numbering
from pprof_merge.profile import Profile
from pprof_merge.profile.records import Labels


def split_types(
    profile: Profile, parts: Iterable[Sequence[int]], without_labels: Collection[bytes] = ()
) -> Iterator[Profile]:
    """Yield, for each of the `parts`, a profile with these columns of values; the first is its default type.

    Labels with the keys `without_labels` are left out. Samples that are the same then are one, and those
    without a value are left out, with what only they use.
    """
    header = profile.header
    samples = replace(profile.samples, labels=_without(profile, without_labels))
    # A merge of the one profile, which is numbered once for all parts.
    tables, uses = Numbering(), Uses()
    tables.add(profile.replace(samples=samples).columns)
    numbered, strings = tables.numbered, tables.strings.since(0)
    uses.add((0, b""), tables, numbered, 0)
    stacks, values = view32(numbered.stacks, numbered.n_stacks), view64(numbered.values, numbered.n_values)
    values = values.reshape(len(stacks), len(header.sample_types))
    for columns in parts:
        types = tuple(header.sample_types[column] for column in columns)
        yield Profile(
            header._replace(sample_types=types, default_sample_type=types[0].type),
            assemble(tables, strings, uses, _totals(stacks, values[:, [*columns]]), WHOLE),
            profile.digest,
        )


def _totals(stacks: Int32s, values: Int64s) -> Totals:
    """Return the sum of the values (n, n_types) of each of the stacks (n,) that has any, in their order."""
    rows = np.flatnonzero(values.any(axis=1))
    distinct, first, place = np.unique(stacks[rows], return_index=True, return_inverse=True)
    order = np.argsort(first)
    sums = np.zeros((len(distinct), values.shape[1]), np.int64)
    np.add.at(sums, np.argsort(order)[place], values[rows])
    return totals_of(values.shape[1], distinct[order].tobytes(), sums.tobytes())


def _without(profile: Profile, keys: Collection[bytes]) -> Labels:
    labels = profile.samples.labels
    rows = [row for row in np.unique(labels.key).tolist() if profile.strings[row] in keys]
    is_kept = np.isin(labels.key, rows, invert=True)
    owners = rows_of_indexes(labels.offsets, np.flatnonzero(is_kept))
    return Labels(
        key=labels.key[is_kept],
        text=labels.text[is_kept],
        number=labels.number[is_kept],
        unit=labels.unit[is_kept],
        offsets=offsets_of(np.bincount(owners, minlength=len(profile.samples))),
    )
