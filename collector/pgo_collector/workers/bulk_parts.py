"""Tasks of a cluster's workers: blobs in, by name; their rows or facts out, as bytes.

They run in processes that have this package installed and can read the blobs, on any machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pprof_merge import Collection
from pprof_merge.heap import keep_heap_anyway, trim_after, trim_heap

from pgo_collector.blobs.storage import Storage
from pgo_collector.engine.blob_columns import STORED_LIMITS, BlobColumns
from pgo_collector.engine.merge_inputs import ENGINE
from pgo_collector.engine.packing import pack_to_send
from pgo_collector.engine.row_cache import Rows
from pgo_collector.engine.tasks import Unreadable, inspect_all
from pgo_collector.errors import EngineDiffers
from pgo_collector.model.facts import Facts


class ReadPart(NamedTuple):
    """The rows of blobs as `absorb_rows` takes them, how many there are, and why the others aren't there."""

    sent: bytes
    read: int
    unreadable: dict[str, str]


def read_part(engine: str, blobs: BlobColumns, is_last: bool) -> ReadPart:
    """Read and number the blobs. Raises EngineDiffers.

    The heap keeps its free pages for the next range. After one of the last, the system gets them back.
    """
    try:
        return _read_part(engine, blobs)
    finally:
        if is_last:
            trim_heap()


def _read_part(engine: str, blobs: BlobColumns) -> ReadPart:
    _begin(engine)
    rows = Rows(STORED_LIMITS)
    unreadable = rows.load(blobs, np.arange(len(blobs)))
    segment = rows.collection.since(Collection().mark)
    return ReadPart(
        pack_to_send((engine, segment)),
        len(blobs) - len(unreadable),
        {blobs.name(row): why for row, why in unreadable.items()},
    )


@trim_after
def inspect_part(engine: str, storage: Storage, blobs: Sequence[tuple[str, str]]) -> list[Facts | Unreadable]:
    """Return what `inspect_all` does. Raises EngineDiffers."""
    _begin(engine)
    return inspect_all(storage, blobs)


def _begin(engine: str) -> None:
    """Begin a task of a collector with this engine. Raises EngineDiffers."""
    keep_heap_anyway()
    if engine != ENGINE:
        raise EngineDiffers(
            f"this worker has pprof-merge {ENGINE}, and the collector {engine}; install the same version"
        )
