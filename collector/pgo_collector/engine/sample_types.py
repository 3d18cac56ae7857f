"""Tasks of workers that are about one sample type: what profiles measure, and one type of several merges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pprof_merge import ProfileError, ValueType, summaries

from pgo_collector.engine.blob_columns import STORED_LIMITS


class Kind(NamedTuple):
    """The period and the sample types of a profile."""

    period: ValueType
    measured: tuple[ValueType, ...]


def read_kinds(blobs: Sequence[Path]) -> list[Kind | None]:
    """Return the kinds of stored profiles; None for one that can't be read."""
    kinds: list[Kind | None] = []
    for path in blobs:
        try:
            (known,) = summaries([path.read_bytes()], STORED_LIMITS)
        except OSError:
            kinds.append(None)
            continue
        if isinstance(known, ProfileError):
            kinds.append(None)
        else:
            kinds.append(Kind(known.header.period_type, known.header.sample_types))
    return kinds
