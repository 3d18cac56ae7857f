"""Profiles in the order of merging, their traces side by side: what a merge sums, and what it weighs by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pprof_merge.headers import column_order
from pprof_merge.profile import Header, Int32s, Int64s
from pprof_merge.ragged import offsets_of
from pprof_merge.traces import Traces

# Traces are taken together up to so many, which bounds what it takes besides the sums.
_CHUNK_TRACES = 1 << 16


class Chunk(NamedTuple):
    """Traces of p profiles: stacks (m,), values (m, n_types); `offsets` (p + 1) of each profile's."""

    stacks: Int32s
    values: Int64s
    offsets: Int64s


def place(traces: Traces) -> tuple[int, bytes]:
    """What profiles are ordered by."""
    return traces.header.time_nanos, traces.digest


def chunks(profiles: Sequence[Traces], header: Header) -> Iterator[Chunk]:
    """The traces of all profiles, in their order; the values in columns as the header has them."""
    taken: list[Traces] = []
    size = 0
    for traces in profiles:
        taken.append(traces)
        size += len(traces.stacks)
        if size >= _CHUNK_TRACES:
            yield _joined(taken, header)
            taken, size = [], 0
    if taken:
        yield _joined(taken, header)


def _joined(profiles: Sequence[Traces], header: Header) -> Chunk:
    return Chunk(
        np.concatenate([traces.stacks for traces in profiles]),
        np.concatenate([values_of(traces, header) for traces in profiles]),
        offsets_of(np.array([len(traces.stacks) for traces in profiles])),
    )


def values_of(traces: Traces, header: Header) -> Int64s:
    """The values, in columns as the header has them."""
    if traces.header.sample_types == header.sample_types:
        return traces.values
    return traces.values[:, column_order(traces.header, header.sample_types)]
