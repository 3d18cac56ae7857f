"""Merging: many decoded profiles → one `Profile`, by the rules of google/pprof's `profile.Merge`.
`__all__` has what others use.

- `batch`: `Batch` reads profiles and merges them once; `merge` does so with profiles that are read.
- `collection`: `Collection` keeps every profile it has read, so that any selection of them can be merged.
- `numbering`: columns of a profile → numbers in tables that all profiles share, where each string, function,
  location and stack is stored once. mypyc compiles it.
- `request_labels`: takes labels that differ for each request out of a profile, or all samples but those of
  some requests. mypyc compiles it.
- `assembly`: sums of stacks, and the tables of the merged profile, in order. mypyc compiles it.
- `dictionary`: these tables as NumPy sees them; `mapping_use` has mappings with all their attributes.
- `numbered`: profiles with the dictionary's numbers: stack numbers and values.
  `numbering` makes them, in columns of the engine.
- `selection`: the numbered profiles to merge, in order; `sums`: their values, added up by stack;
  `incremental`: what a selection's merge is made of, to which new profiles can be added.
- `headers`: which profiles are compatible, and the header of their merge.
- `snapshots`: what views show of profiles of a moment, such as those of the heap, which a merge adds up.
- `weights`, `weighing` and `origins`: how much each profile counts, by duration, instance, version or age.
- `segment`: what a collection has read since it was last saved.
"""

from typing import TYPE_CHECKING

from pprof_merge.errors import WeightingInvalid
from pprof_merge.lazy import lazy_names
from pprof_merge.merging.batch import Batch, merge
from pprof_merge.merging.headers import check_compatible
from pprof_merge.merging.request_labels import EVERY_REQUEST, REQUEST_LABELS, RequestIds
from pprof_merge.merging.weights import (
    PLAIN_WEIGHTING,
    WEIGHTS,
    Weighting,
    parse_half_life,
    parse_weight,
    times_until,
)

if TYPE_CHECKING:
    from pprof_merge.merging.collection import Collection
    from pprof_merge.merging.segment import SEGMENT_PARTS, Entries, PackedSegment, Segment
    from pprof_merge.merging.snapshots import Kind, Snapshots, kind_of, kinds_of
    from pprof_merge.merging.weighing import SERVICE

__all__ = [  # noqa: RUF022 - in the order in which a reader looks for them
    "merge",
    "Collection",
    # What a collection has read, to be saved and loaded again.
    "Segment",
    "Entries",
    "PackedSegment",
    "SEGMENT_PARTS",
    "check_compatible",
    # Labels of samples that number requests: a `Batch` can leave them out, or take only some requests.
    "Batch",
    "REQUEST_LABELS",
    "RequestIds",
    "EVERY_REQUEST",
    # What is added up, and what isn't.
    "Kind",
    "Snapshots",
    "kind_of",
    "kinds_of",
    # How much each profile counts.
    "Weighting",
    "PLAIN_WEIGHTING",
    "SERVICE",
    "WEIGHTS",
    "parse_weight",
    "parse_half_life",
    "times_until",
    "WeightingInvalid",
]

__getattr__ = lazy_names(
    __name__,
    {
        "collection": ["Collection"],
        "segment": ["SEGMENT_PARTS", "Entries", "PackedSegment", "Segment"],
        "snapshots": ["Kind", "Snapshots", "kind_of", "kinds_of"],
        "weighing": ["SERVICE"],
    },
)


def __dir__() -> list[str]:
    """Return the published names."""
    return __all__
