"""Many profiles → one, as google/pprof's `profile.Merge`: intern each, sum the rows, build the tables.

Go's result depends on the order of its inputs: samples, and all that hangs off them, come in the order
of first appearance, and some of the header is the first profile's. Here the order is always that of
`time_nanos`, then `digest`, so that the same set of profiles gives the same result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from pprof_merge.batch import Batch
from pprof_merge.dictionary import Dictionary, Traces
from pprof_merge.errors import ProfileError
from pprof_merge.headers import column_order, combine_headers
from pprof_merge.profile import Header, Int64s, Ints, Labels, Locations, Mappings, Profile, Samples
from pprof_merge.ragged import first_appearance, offsets_of, take_rows


def merge(profiles: Iterable[Profile]) -> Profile:
    """The merge of all profiles, which are taken one at a time and not kept.

    Raises IncompatibleProfiles where their types differ, and ProfileError where there is none.
    """
    dictionary = Dictionary()
    traces = [dictionary.intern(Batch.of(profile))[0] for profile in profiles]
    return total(dictionary, traces)


def total(dictionary: Dictionary, rows: Sequence[Traces]) -> Profile:
    """The merge of the profiles that left these traces in the dictionary. Raises as `merge` does."""
    if not rows:
        raise ProfileError("there is no profile to merge")
    rows = sorted(rows, key=lambda row: (row.header.time_nanos, row.digest))
    header = combine_headers([row.header for row in rows])
    stacks, values = _sum(rows, header)
    label_sets, frames, frame_offsets = dictionary.stacks(stacks)
    location_numbers, location_rows = first_appearance(frames)
    locations = dictionary.locations(location_numbers)
    mappings, mapping_rows = _mappings(rows, locations.mapping)
    mapping = mapping_rows[locations.mapping]
    function_numbers, function_rows = first_appearance(locations.lines.function)
    return Profile(
        header=header,
        samples=Samples(values, location_rows[frames], frame_offsets, _labels(dictionary, label_sets)),
        mappings=mappings,
        locations=Locations(
            mapping=mapping,
            address=locations.address.view(np.uint64) + np.append(mappings.start, np.uint64(0))[mapping],
            folded=locations.folded,
            lines=replace(locations.lines, function=function_rows[locations.lines.function]),
        ),
        functions=dictionary.functions(function_numbers),
        strings=list(dictionary.strings),
        digest=hashlib.sha256(b"".join(row.digest for row in rows)).digest(),
    )


def _sum(rows: Sequence[Traces], header: Header) -> tuple[Int64s, Int64s]:
    """The stacks in the order of first appearance, less those whose values add up to 0, and their values."""
    stacks = np.concatenate([row.stacks for row in rows])
    values = np.concatenate([row.values[:, column_order(row.header, header.sample_types)] for row in rows])
    order, row_of = first_appearance(stacks)
    sums = np.zeros((len(order), values.shape[1]), np.int64)
    for column in range(values.shape[1]):  # exact, and wrapping at 64 bits as Go's
        np.add.at(sums[:, column], row_of[stacks], values[:, column])
    nonzero = sums.any(axis=1)
    return order[nonzero], sums[nonzero]


def _mappings(rows: Sequence[Traces], used: Ints) -> tuple[Mappings, Int64s]:
    """The main binary's mapping, then those used; and the row of each by number, -1 for number -1.

    The attributes are those of the profile that uses the mapping first.
    """
    main = next((row.main for row in rows if row.main), {})
    attributes = dict(main)
    for row in rows:
        for number, mapping in row.mappings.items():
            attributes.setdefault(number, mapping)
    numbers, row_of = first_appearance(np.concatenate((np.array(list(main), np.int64), used[used >= 0])))
    chosen = [attributes[number] for number in numbers.tolist()]
    return Mappings(
        start=np.array([mapping.start for mapping in chosen], np.uint64),
        limit=np.array([mapping.limit for mapping in chosen], np.uint64),
        offset=np.array([mapping.offset for mapping in chosen], np.uint64),
        filename=np.array([mapping.filename for mapping in chosen], np.int64),
        build_id=np.array([mapping.build_id for mapping in chosen], np.int64),
        flags=np.array([mapping.flags for mapping in chosen], np.bool_).reshape(-1, 4),
    ), np.append(row_of, -1)


def _labels(dictionary: Dictionary, label_sets: Ints) -> Labels:
    numbers, row_of = first_appearance(label_sets)
    sets = dictionary.label_sets(numbers)
    columns = np.array([label for labels in sets for label in labels], np.int64).reshape(-1, 4)
    set_offsets = offsets_of(np.array([len(labels) for labels in sets], np.int64))
    index, offsets = take_rows(set_offsets, row_of[label_sets])
    key, text, number, unit = columns[index].T
    return Labels(key, text, number, unit, offsets)
