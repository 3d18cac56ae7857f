"""Files of a pgo-fleet server: a start imports all `*.pgo`, merged ones too, at the top of the folder."""

from __future__ import annotations

import asyncio
import shutil

import structlog
from pprof_merge import ProfileError

from pgo_collector.engine.blob_columns import STORED_LIMITS
from pgo_collector.engine.validation import SubmittedBody, validate_bodies
from pgo_collector.errors import Refusal
from pgo_collector.model.series import Series
from pgo_collector.store.store import Store
from pgo_collector.submits.commit import Commits, Submission
from pgo_collector.submits.submits import SubmitBatcher
from pgo_collector.workers.pool import Workers

_log = structlog.get_logger()


async def import_pgo_fleet_files(store: Store, commits: Commits, workers: Workers, series: Series) -> None:
    """Store each of the files as a profile of `series` and delete it.

    A file that can't be imported stays there, and a warning is logged.
    """
    batcher = SubmitBatcher(workers, STORED_LIMITS, validate_bodies)
    for path in await asyncio.to_thread(lambda: list(store.folder.legacy_profiles())):
        try:
            async with store.part() as part:
                await asyncio.to_thread(shutil.copyfile, path, part)
                valid = await batcher.validate(SubmittedBody(part, series.type))
                submitted = await commits.add(Submission(part, series, valid.facts))
            await asyncio.to_thread(path.unlink)
        except (ProfileError, Refusal, OSError) as error:
            _log.warning("pgo-fleet file skipped", file=str(path), reason=str(error))
        else:
            _log.info("pgo-fleet file stored", file=str(path), profile=submitted.facts.digest)
