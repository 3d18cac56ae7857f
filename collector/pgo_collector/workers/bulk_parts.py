"""Tasks of a cluster's workers: blobs in, by name; their rows or facts out, as bytes.

They run in processes that have this package installed and can read the blobs, on any machine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pprof_merge import Collection
from pprof_merge.heap import keep_heap_anyway, trim_after, trim_heap

from pgo_collector.blobs.storage import Storage
from pgo_collector.engine.blob_columns import STORED_LIMITS, BlobColumns
from pgo_collector.engine.merge_inputs import ENGINE
from pgo_collector.engine.packing import pack_tightly
from pgo_collector.engine.row_cache import Rows
from pgo_collector.engine.tasks import inspect_all
from pgo_collector.errors import EngineDiffers
from pgo_collector.workers.bulk_answers import Answer, answering, facts_as_json


@answering
def read_part(engine: str, blobs: BlobColumns, is_last: bool) -> Answer:
    """Read and number the blobs. Return why some aren't there, by name, and the rows of the others.

    The heap keeps its free pages for the next range. After one of the last, the system gets them back.
    """
    try:
        return _read_part(engine, blobs)
    finally:
        if is_last:
            trim_heap()


def _read_part(engine: str, blobs: BlobColumns) -> Answer:
    _begin(engine)
    rows = Rows(STORED_LIMITS)
    unreadable = rows.load(blobs, np.arange(len(blobs)))
    segment = rows.collection.since(Collection().mark)
    return Answer({blobs.name(row): why for row, why in unreadable.items()}, pack_tightly((engine, segment)))


@answering
@trim_after
def inspect_part(engine: str, storage: Storage, blobs: Sequence[tuple[str, str]]) -> Answer:
    """Return what `inspect_all` does, and no rows."""
    _begin(engine)
    return Answer(facts_as_json(inspect_all(storage, blobs)), b"")


def _begin(engine: str) -> None:
    """Begin a task of a collector with this engine. Raises EngineDiffers."""
    keep_heap_anyway()
    if engine != ENGINE:
        raise EngineDiffers(
            f"this worker has pprof-merge {ENGINE}, and the collector {engine}; install the same version"
        )
