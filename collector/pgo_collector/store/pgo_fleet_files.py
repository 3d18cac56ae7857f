"""pgo-fleet's files: `*.pgo` at the top of the data folder, its merged ones too, taken in at a start."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import structlog
from pprof_merge import ProfileError

from pgo_collector.engine.blob_columns import STORED_LIMITS
from pgo_collector.engine.validation import SubmittedBody
from pgo_collector.errors import Refusal
from pgo_collector.model.series import Series
from pgo_collector.store.group_commit import Submission
from pgo_collector.store.store import Store
from pgo_collector.workers.batcher import SubmitBatcher

_log = structlog.get_logger()


async def import_pgo_fleet_files(store: Store, series: Series) -> None:
    """Submits each of the files to `series` and removes it; one that can't be taken stays, with a warning."""
    paths = await asyncio.to_thread(lambda: list(store.folder.legacy_profiles()))
    batcher = SubmitBatcher(store.workers, STORED_LIMITS)
    for path in paths:
        await _take_in(store, batcher, series, path)


async def _take_in(store: Store, batcher: SubmitBatcher, series: Series, path: Path) -> None:
    try:
        async with store.part() as part:
            await asyncio.to_thread(shutil.copyfile, path, part)
            valid = await batcher.validate(SubmittedBody(part, series.type))
            submitted = await store.add(Submission(part, series, valid.facts))
        await asyncio.to_thread(path.unlink)
    except (ProfileError, Refusal, OSError) as error:
        _log.warning("not taken in, stays", file=str(path), reason=str(error))
    else:
        _log.info("taken in", file=str(path), profile=submitted.facts.digest)
