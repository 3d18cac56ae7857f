"""Open the store, and over it the application with its background tasks, once the server listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from math import isfinite

import structlog
import uvloop
from pprof_merge.heap import trim_heap
from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp

from pgo_collector.background import BackgroundTasks
from pgo_collector.catalog.database import Database
from pgo_collector.catalog.stored_rows import made_nanos
from pgo_collector.checks.catalog import stored_bytes
from pgo_collector.checks.configuration import check_configuration
from pgo_collector.checks.data_folder import check_disk
from pgo_collector.debuginfod.fetching import Fetching, NoFetching
from pgo_collector.errors import CatalogInUse, CatalogUnreachable, CatalogUnreadable
from pgo_collector.hooks.deliveries import Deliveries, NoDeliveries, announce
from pgo_collector.hooks.endpoint import Endpoint
from pgo_collector.http.keys import Keys
from pgo_collector.merges.kept import KeptMerges
from pgo_collector.merges.rules_folder import RulesFolder
from pgo_collector.merges.warming import Warming
from pgo_collector.metrics.gauges import Gauges
from pgo_collector.metrics.metrics import BUILDS_ASKED, DELIVERIES, OFF, TASKS, Metrics
from pgo_collector.model.profile_types import CPU
from pgo_collector.model.series import Series
from pgo_collector.releases.folder import sweep_releases
from pgo_collector.resources import HeapTrimming
from pgo_collector.serve.app import AppDependencies, OpenStore, create_app
from pgo_collector.serve.first_look import Opening
from pgo_collector.serve.traced import open_tracing
from pgo_collector.settings import Settings
from pgo_collector.starting.pgo_fleet_files import import_pgo_fleet_files
from pgo_collector.starting.progress import Progress
from pgo_collector.starting.reconcile import Reconciliation
from pgo_collector.store.binaries import Binaries
from pgo_collector.store.folder import DataFolder
from pgo_collector.store.locks import Locks
from pgo_collector.store.start_lines import StartLineTables
from pgo_collector.store.store import Store, catalog_fails, claim_of, database_of, storage_of
from pgo_collector.submits.commit import Commits
from pgo_collector.submits.function_metrics import FunctionRulesFile, NoFunctionRules
from pgo_collector.submits.opened_files import open_files
from pgo_collector.traces.tracing import Tracing
from pgo_collector.ui.sessions import SessionTokens
from pgo_collector.upkeep.clock import TrustedClock
from pgo_collector.upkeep.joining import Joining, NoJoining
from pgo_collector.upkeep.upkeep import Upkeep
from pgo_collector.workers.blob_tasks import BlobTasks
from pgo_collector.workers.bulk import open_bulk
from pgo_collector.workers.pool import Workers
from pgo_collector.workers.process import WorkerBounds

# How often a collector tries to open a catalog that another one has to itself, besides the time of a try.
_WAIT_SECONDS = 1.0
# How long a sign-in to the pages lasts.
_SESSION_SECONDS = 12 * 3600
# How far after now a profile may say that it was taken; one that says more has the time at which it comes.
_MOST_SECONDS_AHEAD = 300.0
# How long the receiver of an event may take to answer, how long an event is tried, and how many may wait.
_WEBHOOK_SECONDS, _WEBHOOK_DAYS, _WEBHOOK_EVENTS = 15.0, 3.0, 10_000
_log = structlog.get_logger()


def reindex(settings: Settings) -> int:
    """Rebuild the catalog from the blobs, and return the number of live blobs.

    Raises CannotStart, StorageFails and CatalogFails.
    """
    with _catalog_failures():
        return uvloop.run(_reindex(settings))


@contextmanager
def _catalog_failures() -> Iterator[None]:
    """Raise CatalogFails for an error of the catalog's database, which may be lost at any point."""
    try:
        yield
    except SQLAlchemyError as error:
        raise catalog_fails(error) from error


@asynccontextmanager
async def open_store(
    settings: Settings,
    folder: DataFolder,
    metrics: Metrics = OFF,
    progress: Progress | None = None,
    made_before: int | None = None,
) -> AsyncIterator[OpenStore]:
    """Open the store of a locked data folder, and bring its catalog in line with the blobs on disk.

    The catalog takes the place of the one that was `made_before`, in ns since 1970, if it was just cleared.
    """
    progress = progress or Progress()
    storage = storage_of(settings)
    bounds = WorkerBounds(
        rows_bytes=(settings.rows_megabytes << 20) // settings.workers,
        task_bytes=settings.worker_megabytes << 20,
        task_seconds=settings.task_seconds,
        pattern_seconds=settings.pattern_seconds,
        body_seconds=settings.body_cpu_seconds,
        waits_seconds=storage.longest_wait,
    )
    folder.ensure_temp_folder()
    async with (
        Workers(
            settings.workers,
            bounds,
            folder.rows,
            lambda task, seconds: metrics.observe(TASKS, seconds, task),
        ) as workers,
        open_bulk(settings, workers, folder.new_part) as bulk,
    ):
        # Not before: the fork server must not begin with the threads of a client of an object store.
        await asyncio.to_thread(storage.verify)
        announcers = (announce,) if settings.webhook_url else ()
        database = database_of(settings)
        await _open(database, settings, progress)
        claim = claim_of(settings, folder, storage, database)
        with Store(folder, database, storage, claim) as store:
            progress.begin("making sure that no other catalog counts the profiles")
            await claim.take(await asyncio.to_thread(store.catalog.made_nanos), made_before)
            await asyncio.to_thread(folder.sweep)
            if database.is_alone:
                await Reconciliation(store, bulk, announcers, progress).run()
                await asyncio.to_thread(sweep_releases, storage)
                await asyncio.to_thread(database.share)
            # The comparison took 1 KB of memory for each blob of the largest folder, or of all if there was
            # no catalog.
            trim_heap()
            commits = Commits(
                store,
                *announcers,
                most_ahead=_MOST_SECONDS_AHEAD,
                keep_days=settings.keep_days,
            )
            await import_pgo_fleet_files(store, commits, workers, Series(settings.default_service, CPU))
            binaries = Binaries(store, workers, settings)
            tasks = BlobTasks(workers, bulk, store.catalog, binaries.symbols)
            yield OpenStore(store, commits, tasks, binaries, bulk.progress)


async def _open(database: Database, settings: Settings, progress: Progress) -> None:
    """Open the catalog's database; wait while it is down, or a collector that may share it has it to itself.

    Each reason is logged once in a row. Raises CatalogUnreadable.
    """
    told: CatalogUnreadable | None = None
    while True:
        try:
            return await asyncio.to_thread(database.open)
        except CatalogUnreachable as error:
            waiting: CatalogUnreadable = error
            progress.begin("waiting for the catalog, which can't be reached", is_stuck=True)
        except CatalogInUse as error:
            if not settings.is_shared:
                raise
            waiting = error
            progress.begin("waiting for the collector that compares the stored profiles with the catalog")
        if str(waiting) != str(told):
            _log.warning("waiting for catalog", reason=str(waiting))
        told = waiting
        await asyncio.sleep(_WAIT_SECONDS)


@asynccontextmanager
async def opened_app(
    settings: Settings,
    folder: DataFolder,
    keys: Keys,
    secret: bytes,
    *,
    metrics: Metrics,
    progress: Progress,
    stopping: asyncio.Event,
    first: Opening,
) -> AsyncIterator[tuple[ASGIApp, SessionTokens]]:
    """Open the application over a store, with its background tasks; return it, and the tokens that sign in.

    Raises CannotStart, StorageFails and CatalogFails.
    """
    endpoint, clock = _endpoint(settings), TrustedClock()
    tokens = SessionTokens(keys.merge, secret, _SESSION_SECONDS)
    tracing = open_tracing(settings, folder.path, clock.is_trusted)
    with _catalog_failures(), closing(tracing):
        async with (
            open_store(settings, folder, metrics, progress) as opened,
            open_files(folder, opened.tasks, settings.limits, first.file_seconds) as files,
        ):
            await first.open(files)
            store, tasks = opened.store, opened.tasks
            await asyncio.to_thread(RulesFolder(settings.rules_dir).check)
            kept_merges = await asyncio.to_thread(KeptMerges, folder.merged, settings.merges_kept)
            locks = Locks(store.catalog.database.leases)
            warming, start_lines = Warming(store, tasks), StartLineTables(store, tasks.workers, settings)
            upkeep = Upkeep(store, tasks, locks, settings, clock, binaries=opened.binaries, tracing=tracing)
            background = BackgroundTasks(
                {
                    "submit keys": keys.submit,
                    "merge keys": keys.merge,
                    "metrics keys": keys.metrics,
                    "trace keys": tracing,
                    "function rules": await asyncio.to_thread(_function_rules, settings, opened.commits),
                    "warming": warming,
                    "upkeep": upkeep,
                    "joining": _joining(locks, start_lines, settings, tracing),
                    "debuginfod": _fetching(opened, locks, settings, metrics, tracing),
                    "claim": store.claim,
                    "heap": HeapTrimming(),
                    "opened files": files,
                    "webhook": _deliveries(endpoint, store, locks, clock, metrics=metrics, tracing=tracing),
                }
            )
            gauges = Gauges(
                store,
                workers=tasks.workers,
                bulk=opened.bulk_progress,
                warming=warming,
                upkeep=upkeep,
                background=background,
                clocks=opened.commits.clocks,
                functions=opened.commits.functions,
                tracing=tracing,
            )
            metrics.register_gauges(gauges)
            dependencies = AppDependencies(
                opened,
                kept_merges,
                start_lines,
                locks,
                warming,
                background,
                keys,
                tokens,
                files,
                stopping,
                metrics,
                tracing,
            )
            async with background.running():
                yield create_app(settings, dependencies), tokens


def log_findings(settings: Settings) -> None:
    """Log what `pgo-collector check` would find wrong with the configuration and the disk."""
    with closing(database_of(settings)) as database:
        sizes = stored_bytes(database)
    for finding in (*check_configuration(settings), check_disk(settings, sizes)):
        if finding.state != "ok":
            _log.warning("check found", **finding._asdict())


async def _reindex(settings: Settings) -> int:
    with DataFolder(settings.directory) as folder:
        folder.drop_caches()
        database = database_of(settings)
        made_before = _made_nanos(database)
        database.clear()
        async with open_store(settings, folder, made_before=made_before) as opened:
            with opened.store.catalog.rows() as rows:
                return sum(row.live for row in rows)


def _made_nanos(database: Database) -> int | None:
    """Return when a catalog was made, in ns since 1970; None if it can't be read."""
    try:
        with database.looking() as connection:
            return made_nanos(connection)
    except SQLAlchemyError:
        return None


def _endpoint(settings: Settings) -> Endpoint | None:
    """Return the endpoint of events, None if there is no webhook. Raises SecretUnusable."""
    if settings.webhook_url is None:
        return None
    return Endpoint(settings.webhook_url, settings.webhook_secret_file, _WEBHOOK_SECONDS)


def _function_rules(settings: Settings, commits: Commits) -> FunctionRulesFile | NoFunctionRules:
    if settings.function_metrics_file is None or not settings.has_metrics:
        return NoFunctionRules()
    return FunctionRulesFile(settings.function_metrics_file, commits.functions)


def _joining(
    locks: Locks, tables: StartLineTables, settings: Settings, tracing: Tracing
) -> Joining | NoJoining:
    if not isfinite(settings.join_seconds):
        return NoJoining()
    return Joining(tables, locks, settings.join_seconds, tracing)


def _fetching(
    opened: OpenStore, locks: Locks, settings: Settings, metrics: Metrics, tracing: Tracing
) -> Fetching | NoFetching:
    if not settings.servers_of_debuginfod:
        return NoFetching()
    return Fetching(
        opened.store,
        opened.tasks,
        opened.binaries,
        locks,
        settings,
        observe=lambda outcome: metrics.count(BUILDS_ASKED, outcome),
        tracing=tracing,
    )


def _deliveries(
    endpoint: Endpoint | None,
    store: Store,
    locks: Locks,
    clock: TrustedClock,
    *,
    metrics: Metrics,
    tracing: Tracing,
) -> Deliveries | NoDeliveries:
    if endpoint is None:
        return NoDeliveries()
    return Deliveries(
        store,
        locks,
        endpoint,
        max_days=_WEBHOOK_DAYS,
        max_events=_WEBHOOK_EVENTS,
        is_trusted=clock.is_trusted,
        observe=lambda outcome, count: metrics.count(DELIVERIES, outcome, amount=count),
        tracing=tracing,
    )
