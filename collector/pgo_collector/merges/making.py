"""The making of a merge: the call of the engine, and what is said of it."""

from __future__ import annotations

import time
from pathlib import Path

import structlog
from pprof_merge import UNBOUNDED, Budget

from pgo_collector.engine.collected import Chosen
from pgo_collector.engine.forms import Form
from pgo_collector.engine.tasks import Merged, merge_blobs
from pgo_collector.errors import NothingToMerge
from pgo_collector.store.store import Store

_log = structlog.get_logger()


async def make_merge(
    store: Store, chosen: Chosen, form: Form, part: Path, budget: Budget = UNBOUNDED
) -> Merged:
    """Writes the merge of some blobs to the file `part`.

    Raises NothingToMerge where none can be taken, NotOfThisProfile, AnswerTooLarge, WorkerUnavailable or
    OSError.
    """
    count, start = len(chosen.blobs), time.perf_counter()
    merged = await store.workers.run_for(chosen.owner, merge_blobs, chosen, form, part, budget)
    ms = round((time.perf_counter() - start) * 1000, 1)
    _log.info("merged", service=chosen.service, type=chosen.type, blobs=count, format=form.format.name, ms=ms)
    for left in merged.left_out:
        _log.warning("left out of the merge", blob=left.blob, reason=left.reason)
    if merged.facts is None:
        raise NothingToMerge(f"none of the {count} stored profiles can be taken: {merged.left_out[0].reason}")
    return merged
