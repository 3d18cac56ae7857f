"""Make merges: the task for a worker, and the open file of a merge."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

import structlog
from pprof_merge import UNBOUNDED, Budget

from pgo_collector.engine.merge_inputs import ChosenBlobs
from pgo_collector.engine.renditions import Rendition
from pgo_collector.engine.tasks import MergeResult, merge_blobs
from pgo_collector.errors import NothingToMerge
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.selection import EXACT, Coarse
from pgo_collector.store.store import Store

_log = structlog.get_logger()


async def make_merge(
    store: Store, chosen: ChosenBlobs, rendition: Rendition, part: Path, budget: Budget = UNBOUNDED
) -> MergeResult:
    """Write the merge of blobs to the file `part`, and return what the worker says about it.

    Raises NothingToMerge if none of the blobs can be merged, NotOfThisProfile, AnswerTooLarge,
    WorkerUnavailable or OSError.
    """
    count, start = len(chosen.blobs), time.perf_counter()
    await store.bulk.load(chosen)
    merged = await store.workers.run_for(chosen.owner, merge_blobs, chosen, rendition, part, budget)
    ms = round((time.perf_counter() - start) * 1000, 1)
    format_ = rendition.format.name
    _log.info("merged", service=chosen.service, type=chosen.type, blobs=count, format=format_, ms=ms)
    for left in merged.left_out:
        _log.warning("left out of the merge", blob=left.blob, reason=left.reason)
    if merged.facts is None:
        raise NothingToMerge(
            f"none of the {count} stored profiles can be merged: {merged.left_out[0].reason}"
        )
    return merged


@dataclass(frozen=True, slots=True)
class OpenMerge:
    """A merge with its open file, and what its answer's headers say, all of one moment.

    `etag` is the SHA-256 of the bare protobuf, in hex, for the merge itself; for another rendition it is the
    SHA-256 of the file, and the format's name. `size` is that of the file, in bytes. `coarse` says where the
    selection was finer than what is stored, `left_out` which blobs couldn't be merged.
    """

    etag: str
    size: int
    left_out: tuple[LeftOut, ...]
    coarse: Coarse
    file: BinaryIO

    @classmethod
    def at(cls, path: Path, etag: str, left_out: tuple[LeftOut, ...], coarse: Coarse) -> Self:
        """Open the file of a merge. Raises OSError."""
        file = path.open("rb")
        return cls(etag, os.fstat(file.fileno()).st_size, left_out, coarse, file)

    @classmethod
    def of(cls, file: BinaryIO, etag: str) -> Self:
        """Return a stored profile, in a file that is open at its beginning, as the merge of it alone."""
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        return cls(etag, size, (), EXACT, file)
