"""Fetching: the background task that asks debuginfod servers for programs whose functions have no names.

Each round looks at the services with new profiles, and asks for the builds that most samples are in: one of
each service in turn, so that a service with many, real or invented, doesn't hold up the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import chain, islice, zip_longest
from typing import NamedTuple, NoReturn

import structlog
from pprof_merge import Budget
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.blobs.storage import BINARIES
from pgo_collector.catalog.database import Owner
from pgo_collector.catalog.leases import Lease
from pgo_collector.debuginfod.answers import Answers, Outcome
from pgo_collector.debuginfod.servers import Kind, Server, Servers
from pgo_collector.engine.unnamed import unnamed_blobs
from pgo_collector.errors import (
    BinariesOff,
    BinaryThere,
    BinaryUnreadable,
    BinaryUnwanted,
    DebugFileTooLarge,
    DebuginfodFails,
    LeaseHeld,
    Refusal,
    TaskOutOfMemory,
    TaskTooSlow,
)
from pgo_collector.merges.inputs import chosen_of
from pgo_collector.model.debuginfod_servers import is_build_id
from pgo_collector.model.selection import Selection
from pgo_collector.model.times import DAY_NANOS
from pgo_collector.settings import Settings
from pgo_collector.store.binaries import SHARED, Binaries
from pgo_collector.store.locks import Locks
from pgo_collector.store.store import Store
from pgo_collector.traces.tracing import NO_TRACING, Tracing
from pgo_collector.workers.blob_tasks import BlobTasks

# Between two rounds, and between two tries to take the lease that another collector has.
_PAUSE_SECONDS = 60.0
# The services and types that are looked at in a round, each of which takes some milliseconds.
_MOST_LOOKS = 100
# The profiles of a service and type that are looked at, the newest, and the builds that are taken from them.
_MOST_PROFILES = 32
_MOST_BUILDS = 50
# The builds that are asked for in a round, and at once.
_MOST_ASKED = 20
_AT_ONCE = 2
# How many build ids the servers are asked for in an hour.
_BUILDS_PER_HOUR = 300
# What came of several servers' answers is the last of these.
_IN_ORDER: Sequence[Outcome] = ("missing", "unusable", "failed", "found")
# Separate debug information says most; a program may have all, or symbols only.
_KINDS: tuple[Kind, ...] = ("debuginfo", "executable")
_UNUSABLE = (BinaryUnreadable, BinaryUnwanted, DebugFileTooLarge, TaskOutOfMemory, TaskTooSlow)
_log = structlog.get_logger()


class _Look(NamedTuple):
    """A look at a service and type: the largest id of a blob, and when it was, by the monotonic clock."""

    id: int
    at: float


_NEVER = _Look(0, 0.0)


class NoFetching:
    """The null object of a collector that asks no servers."""

    async def run(self) -> None:
        """Do nothing."""


class Fetching:
    """Asks debuginfod servers; one collector at a time does. `observe` is called with each outcome."""

    def __init__(
        self,
        store: Store,
        tasks: BlobTasks,
        binaries: Binaries,
        locks: Locks,
        settings: Settings,
        *,
        observe: Callable[[Outcome], None],
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._binaries = binaries
        self._locks = locks
        self._budget: Budget = settings.output_budget
        self._observe = observe
        self._tracing = tracing
        free_bytes = int(settings.min_free_megabytes * (1 << 20))
        self._servers = Servers(settings.servers_of_debuginfod, settings.binary_bytes, free_bytes)
        self._answers = Answers(
            store.blobs.storage.area(BINARIES), settings.servers_of_debuginfod, _BUILDS_PER_HOUR
        )
        # By service and type: when it was last looked at, and the builds without names, those in most samples
        # first.
        self._looked: dict[Owner, _Look] = {}
        self._wanted: dict[Owner, list[str]] = {}

    async def run(self) -> None:
        """Look and ask now and after each pause, until cancelled."""
        try:
            await self._binaries.check()
        except BinariesOff:  # which `check found` says at the start
            return
        async with self._servers:
            while True:
                try:
                    async with self._locks.lease("debuginfod") as lease:
                        await self._rounds(lease)
                except LeaseHeld:
                    pass  # another collector asks
                except (Refusal, OSError, SQLAlchemyError) as error:
                    _log.error("names not fetched", reason=str(error))
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _rounds(self, lease: Lease) -> NoReturn:
        """Look and ask as long as this collector has the lease. Raises Refusal, OSError, SQLAlchemyError."""
        await asyncio.to_thread(self._answers.load, _now())
        while True:
            lease.check_time()
            with self._tracing.background("upkeep", "debuginfod"):
                await self._look()
                await self._ask(lease)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _look(self) -> None:
        """Note which builds lack names in the newest profiles of what has new ones."""
        newest = await asyncio.to_thread(self._store.catalog.newest_ids, time.time_ns() - DAY_NANOS)
        for each in self._looked.keys() - newest.keys():
            del self._looked[each]
            self._wanted.pop(each, None)
        due = [owner for owner, id_ in newest.items() if id_ > self._looked.get(owner, _NEVER).id]
        due.sort(key=lambda owner: self._looked.get(owner, _NEVER).at)
        for owner in due[:_MOST_LOOKS]:
            self._looked[owner] = _Look(newest[owner], time.monotonic())
            self._wanted[owner] = await self._unnamed(*owner)

    async def _unnamed(self, service: str, type_: str) -> list[str]:
        """Return the builds without names in a service's newest profiles, those in most samples first."""
        selection = Selection(service, type_)
        blobs = await asyncio.to_thread(self._store.catalog.live, selection, _MOST_PROFILES)
        chosen = chosen_of(self._store.blobs.storage, selection, blobs)
        try:
            result = await self._tasks.run(unnamed_blobs, chosen, "", self._budget)
        except Refusal as error:  # the profiles are too large, or were deleted: others may not be
            _log.warning("profiles not looked at", service=service, type=type_, reason=str(error))
            return []
        builds = dict.fromkeys(build.build_id for build in result.builds if is_build_id(build.build_id))
        return [*islice(builds, _MOST_BUILDS)]

    async def _ask(self, lease: Lease) -> None:
        """Ask for some of the builds that lack names, as long as not all servers rest."""
        chosen = await self._chosen(_now())
        try:
            for begin in range(0, len(chosen), _AT_ONCE):
                if all(server.rests for server in self._servers.all):
                    return
                lease.check_time()
                async with asyncio.TaskGroup() as group:
                    for build_id in chosen[begin : begin + _AT_ONCE]:
                        group.create_task(self._ask_for(build_id))
        finally:
            if chosen:
                await self._store.write_area(self._answers.save, _now())

    async def _chosen(self, now: int) -> list[str]:
        """Return the builds to ask for now: what is stored of them, if anything, knows no lines."""
        due = (
            [(service, build_id) for build_id in builds if self._answers.is_due(build_id, now)]
            for (service, _), builds in self._wanted.items()
        )
        most = min(self._answers.left(now), _MOST_ASKED)
        stored: dict[str, set[str]] = {}
        chosen: dict[str, None] = {}
        for service, build_id in filter(None, chain.from_iterable(zip_longest(*due))):
            if len(chosen) >= most:
                break
            if service not in stored:
                symbols = await asyncio.to_thread(self._tasks.symbols_of, service)
                stored[service] = {of.build_id for of in symbols.stored if of.kind != "symbols"}
            if build_id not in stored[service]:
                chosen[build_id] = None
        return [*chosen]

    async def _ask_for(self, build_id: str) -> None:
        """Ask the servers, one after another, until one has a file that gives names; note what came of it."""
        outcomes: list[Outcome] = []
        for kind in _KINDS:
            for server in self._servers.all:
                if "found" not in outcomes:
                    outcomes.append(await self._fetch(server, build_id, kind))
        outcome = max(outcomes, key=_IN_ORDER.index)
        self._answers.note(build_id, outcome, _now())
        self._observe(outcome)

    async def _fetch(self, server: Server, build_id: str, kind: Kind) -> Outcome:
        """Store a server's file of a build."""
        if server.rests:
            return "failed"
        fields = {"build_id": build_id, "server": server.at.address}
        async with self._store.part() as part:
            try:
                if not await self._servers.download(server, build_id, kind, part):
                    return "missing"
                facts = await self._binaries.add(SHARED, part, build_id)
            except BinaryThere:
                return "found"
            except _UNUSABLE as error:
                _log.warning("debug file unusable", **fields, kind=kind, reason=str(error))
                return "unusable"
            except (DebuginfodFails, Refusal, OSError, SQLAlchemyError) as error:
                _log.warning("debug file not fetched", **fields, kind=kind, reason=str(error))
                return "failed"
        _log.info("debug file fetched", **fields, kind=facts.kind, size=facts.size)
        return "found"


def _now() -> int:
    """Return the time in s since 1970."""
    return int(time.time())
