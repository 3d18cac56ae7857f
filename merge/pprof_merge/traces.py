"""Traces: what is left of a profile once it is interned, alone or packed with those of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from pprof_merge.profile import Header, Int32s, Int64s
from pprof_merge.ragged import offsets_of
from pprof_merge.used_mappings import Mapping

InnerColumns = dict[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Traces:
    """(k,) stacks and (k, n_types) values of a profile's k samples, by the numbers of a dictionary.

    Samples whose values are all 0 are gone. `mappings` are the ones that samples use, by their number,
    with the attributes at first use; `main` is the profile's first mapping, used or not. `inner_columns`
    are those of a location's lines, by its number, where they are more than its key has.
    """

    header: Header
    digest: bytes
    stacks: Int32s
    values: Int64s
    main: dict[int, Mapping]
    mappings: dict[int, Mapping]
    inner_columns: InnerColumns


_Others = tuple[Header, bytes, dict[int, Mapping], dict[int, Mapping], InnerColumns]


@dataclass(frozen=True, slots=True, eq=False)
class PackedTraces:
    """The traces of p profiles: stacks (m,) and values (sum of k * n_types,) of all one after another, and
    each profile's `counts` (p,) of stacks and `others`, which is all the rest.
    """

    counts: Int64s
    stacks: Int32s
    values: Int64s
    others: list[_Others]

    @classmethod
    def of(cls, every: Sequence[Traces]) -> Self:
        """Packs the traces of some profiles."""
        return cls(
            np.array([len(traces.stacks) for traces in every], np.int64),
            np.concatenate([np.zeros(0, np.int32), *(traces.stacks for traces in every)]),
            np.concatenate([np.zeros(0, np.int64), *(traces.values.ravel() for traces in every)]),
            [
                (traces.header, traces.digest, traces.main, traces.mappings, traces.inner_columns)
                for traces in every
            ],
        )

    def unpacked(self) -> list[Traces]:
        """The traces of each profile; their arrays are parts of those here."""
        n_types = np.array([len(header.sample_types) for header, *_ in self.others], np.int64)
        stack_spans = pairwise(offsets_of(self.counts).tolist())
        value_spans = pairwise(offsets_of(self.counts * n_types).tolist())
        return [
            Traces(
                header=header,
                digest=digest,
                stacks=self.stacks[slice(*stack_span)],
                values=self.values[slice(*value_span)].reshape(-1, len(header.sample_types)),
                main=main,
                mappings=mappings,
                inner_columns=inner_columns,
            )
            for (header, digest, main, mappings, inner_columns), stack_span, value_span in zip(
                self.others, stack_spans, value_spans, strict=True
            )
        ]


def add_inner_columns(columns: InnerColumns, more: InnerColumns) -> None:
    """Go keeps those it sees first; the largest do not depend on the order."""
    for number, own in more.items():
        columns[number] = max(own, columns.get(number, ()))
