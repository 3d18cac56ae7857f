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
from pgo_collector.model.facts import NAMED_LEFT_OUT, LeftOut
from pgo_collector.model.selection import EXACT, Coarse
from pgo_collector.workers.blob_tasks import BlobTasks

_log = structlog.get_logger()


async def make_merge(
    tasks: BlobTasks, chosen: ChosenBlobs, rendition: Rendition, part: Path, budget: Budget = UNBOUNDED
) -> MergeResult:
    """Write the merge of blobs to the file `part`, and return what the worker says about it.

    Raises NothingToMerge if none of the blobs can be merged, BlobsGone, NotOfThisProfile, AnswerTooLarge,
    WorkerUnavailable or OSError.
    """
    count, start = len(chosen.blobs), time.perf_counter()
    merged = await tasks.run(merge_blobs, chosen, rendition, part, budget)
    ms = round((time.perf_counter() - start) * 1000, 1)
    format_ = rendition.format.name
    _log.info("merge made", service=chosen.service, type=chosen.type, blobs=count, format=format_, ms=ms)
    for left in merged.left_out:
        _log.warning("blob left out", blob=left.blob, reason=left.reason)
    if merged.facts is None:
        raise NothingToMerge(
            f"none of the {count} stored profiles can be merged: {merged.left_out[0].reason}"
        )
    return merged


@dataclass(frozen=True, slots=True)
class OpenMerge:
    """A merge with its open file, and what its answer's headers say, all of one moment.

    `etag` is the SHA-256 of the bare protobuf, in hex, for the merge itself; for another rendition it is the
    SHA-256 of the file, and the format's name. The first `size` bytes of the file are the merge. `left_out`
    names the first of the `n_left_out` blobs that couldn't be merged. `coarse` says where the selection was
    finer than what is stored. `build_id` is that of the program that it was made with, None if with none.
    """

    etag: str
    size: int
    left_out: tuple[LeftOut, ...]
    n_left_out: int
    coarse: Coarse
    file: BinaryIO
    build_id: str | None = None

    @classmethod
    def at(cls, part: Path, made: MergeResult, coarse: Coarse) -> Self:
        """Open a merge that was just made in the file `part`. Raises OSError."""
        left_out = made.left_out[:NAMED_LEFT_OUT]
        n_left_out, file = len(made.left_out), part.open("rb")
        return cls(made.etag, made.written.size, left_out, n_left_out, coarse, file, made.build_id)

    @classmethod
    def of(cls, file: BinaryIO, etag: str) -> Self:
        """Return a stored profile, in a file that is open at its beginning, as the merge of it alone."""
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        return cls(etag, size, (), 0, EXACT, file)

    def read(self) -> bytes:
        """Return the merge, and close the file. Raises OSError."""
        with self.file:
            return self.file.read(self.size)
