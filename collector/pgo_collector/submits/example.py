"""An example to look at before programs of one's own send profiles; a click on the pages loads or removes it.

Its files are real CPU profiles of two Go programs: of an HTTP service in two versions, and of a batch job.
Each is stored for several of the last days, as if it had been taken then.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Iterator
from pathlib import Path

from pprof_proto.profile_pb2 import Profile
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request

from pgo_collector.catalog.inventory import StoredService
from pgo_collector.model.profile_types import CPU
from pgo_collector.model.selection import Matcher, Selection
from pgo_collector.model.series import Scope, Series
from pgo_collector.model.times import DAY_NANOS
from pgo_collector.store.garbage import delete_live
from pgo_collector.store.locks import Locks
from pgo_collector.store.store import Store, not_stored
from pgo_collector.submits.submits import Submits
from pgo_collector.workers.blob_tasks import BlobTasks

_FOLDER = Path(__file__).with_name("example_profiles")
EXAMPLE = _FOLDER / "api-1.0-a.pb.gz"
EXAMPLE_SERVICES = ("example-api", "example-etl")
# All of its profiles have this label, by which they are removed.
_LABEL = ("example", "true")
# On how many days before yesterday each program and version was profiled; 0 is yesterday.
_DAYS = {"api-1.0": range(5, 10), "api-1.1": range(5), "etl-2.3": range(10)}
_HOUR_NANOS = 3600 * 10**9


def is_example(stored: StoredService) -> bool:
    """Return whether a service has profiles of the example."""
    return stored.service in EXAMPLE_SERVICES and _LABEL[0] in stored.labels


class Example:
    """Stores the profiles of the example like any others, and deletes them again."""

    def __init__(self, store: Store, tasks: BlobTasks, locks: Locks, submits: Submits) -> None:
        self._store = store
        self._tasks = tasks
        self._locks = locks
        self._submits = submits

    @staticmethod
    def may_load(scope: Scope) -> bool:
        """Return whether a key with this scope sees all of the example."""
        return all(scope.includes(service) for service in EXAMPLE_SERVICES)

    async def load(self, request: Request) -> None:
        """Store the profiles; twice on one day makes no difference. Raises what `Submits.keep` raises."""
        for series, content in await asyncio.to_thread(lambda: [*_profiles(time.time_ns())]):
            await self._submits.keep(request, series, content)

    async def remove(self) -> None:
        """Delete the profiles. Raises NotStored, CatalogFails, CatalogBusy or WorkerUnavailable."""
        key, value = _LABEL
        try:
            for service in EXAMPLE_SERVICES:
                async with self._locks.changing(service, CPU) as lease:
                    selection = Selection(service, CPU, (Matcher(key, frozenset([value])),))
                    blobs = await asyncio.to_thread(self._store.catalog.live, selection)
                    await delete_live(self._store, self._tasks, lease, (service, CPU), blobs)
        except (OSError, SQLAlchemyError) as error:
            raise not_stored("removal of the example", error) from error


def _profiles(now_nanos: int) -> Iterator[tuple[Series, bytes]]:
    """Yield the series and the bytes of each profile, of some of the days up to a time, in ns since 1970."""
    today = now_nanos - now_nanos % DAY_NANOS
    for number, file in enumerate(sorted(_FOLDER.glob("*.pb.gz"))):
        program, version, instance = file.name.removesuffix(".pb.gz").split("-")
        profile = Profile.FromString(gzip.decompress(file.read_bytes()))
        labels = (_LABEL, ("instance", f"{program}-{instance}"), ("version", version))
        for day in _DAYS[f"{program}-{version}"]:
            # The last ones are of yesterday evening, which has been at any hour of today.
            profile.time_nanos = today - day * DAY_NANOS - (number + 1) * _HOUR_NANOS
            content = gzip.compress(profile.SerializeToString(deterministic=True), mtime=0)
            yield Series(f"example-{program}", CPU, labels), content
