"""The application: all routes over one store, with the ASGI layers around them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from starlette.applications import Starlette
from starlette.types import ASGIApp

from pgo_collector.background import BackgroundTasks
from pgo_collector.catalog.inventory import Inventory
from pgo_collector.catalog.summaries import Summaries
from pgo_collector.connections.drained_body import DrainBody
from pgo_collector.http.keys import Keys
from pgo_collector.http.layers import AccessLog, AnswerCancelled
from pgo_collector.http.problems import install_error_handlers
from pgo_collector.http.routing import Routes
from pgo_collector.merges.kept import KeptMerges
from pgo_collector.merges.merges import Merges
from pgo_collector.merges.rules_folder import RulesFolder
from pgo_collector.merges.warming import Warming
from pgo_collector.metrics.metrics import OFF, Metrics
from pgo_collector.model.capture_targets import parse_targets
from pgo_collector.model.source_links import SourceLinks
from pgo_collector.queries.activity import Activities
from pgo_collector.queries.fleet import Fleet
from pgo_collector.queries.grafana.profiles import Profiles
from pgo_collector.queries.grafana.reading import Reading
from pgo_collector.queries.overviews import Overviews
from pgo_collector.queries.traces import KeptTraces
from pgo_collector.releases.releases import AllReleases
from pgo_collector.releases.reports import Reports
from pgo_collector.routes.binaries import binaries_routes
from pgo_collector.routes.inventory import inventory_routes
from pgo_collector.routes.merge import merge_routes
from pgo_collector.routes.monitoring import health_route, metrics_routes, ready_routes
from pgo_collector.routes.openapi import openapi_routes
from pgo_collector.routes.protocols import DIALECTS, PROTOCOLS, SUBMITS, Parts
from pgo_collector.routes.push.connect import Messages
from pgo_collector.routes.push.uploads import AgentUploads
from pgo_collector.routes.queries import flame_routes, overview_routes, query_routes, unnamed_routes
from pgo_collector.routes.release import release_routes
from pgo_collector.routes.releases import releases_routes
from pgo_collector.routes.report import report_routes
from pgo_collector.routes.submit import submit_routes
from pgo_collector.routes.symbols import symbols_routes
from pgo_collector.routes.traces import report_of_trace_routes, traces_routes
from pgo_collector.serve.traced import describer
from pgo_collector.settings import Settings
from pgo_collector.store.binaries import Binaries
from pgo_collector.store.locks import Locks
from pgo_collector.store.readiness import Readiness
from pgo_collector.store.start_lines import StartLineTables
from pgo_collector.store.store import Store
from pgo_collector.submits.body import LARGEST_BODY, BodyBound, BodyReader
from pgo_collector.submits.captures import Captures, CapturesOfTargets, NoCaptures
from pgo_collector.submits.commit import Commits
from pgo_collector.submits.example import Example
from pgo_collector.submits.opened_files import MOST_AT_ONCE, OpenedFiles
from pgo_collector.submits.programs import ProgramUploads
from pgo_collector.submits.submits import Quotas, Submits
from pgo_collector.traces.tracing import NO_TRACING, Tracing
from pgo_collector.ui.live_streams import LiveStreams
from pgo_collector.ui.mounting import mount_site
from pgo_collector.ui.rendering import Rendering, has_speedscope
from pgo_collector.ui.sessions import Sessions, SessionsOfFiles, SessionTokens
from pgo_collector.ui.sources import Sources
from pgo_collector.ui.throttle import SignInThrottle
from pgo_collector.workers.blob_tasks import BlobTasks
from pgo_collector.workers.bulk import BulkProgress

# Answers about opened files that are kept for the pages.
_KEPT_ANSWERS_BYTES = 8 << 20


class OpenStore(NamedTuple):
    """An open store, and what works on it: commits of submits, tasks over blobs, programs, and bulk reads."""

    store: Store
    commits: Commits
    tasks: BlobTasks
    binaries: Binaries
    bulk_progress: BulkProgress


class AppDependencies(NamedTuple):
    """The running objects that the routes use. `stopping` is set when the server begins to stop."""

    opened: OpenStore
    kept_merges: KeptMerges
    start_lines: StartLineTables
    locks: Locks
    warming: Warming
    background: BackgroundTasks
    keys: Keys
    tokens: SessionTokens
    files: OpenedFiles
    stopping: asyncio.Event
    metrics: Metrics = OFF
    tracing: Tracing = NO_TRACING


def create_app(settings: Settings, dependencies: AppDependencies) -> ASGIApp:
    """Return the application. It doesn't redirect a path with a trailing slash to one without."""
    app = Starlette()
    app.router.redirect_slashes = False

    def include(routes: Routes) -> None:
        app.router.routes.extend(routes.routes)

    store, commits, tasks, binaries, bulk_progress = dependencies.opened
    workers, (submit_keys, merge_keys, metrics_keys) = tasks.workers, dependencies.keys
    bodies = BodyReader(settings, store.folder.incoming)
    quotas = Quotas(store.catalog, settings.quota_profiles, settings.quota_megabytes)
    submits = Submits(commits, workers, quotas, settings, bodies)
    # First: a request is compared with one route after another, and most are submits.
    include(submit_routes(submits, submit_keys, settings.default_service))
    app.router.routes.append(health_route())
    readiness = Readiness(store, workers, dependencies.background, settings.min_free_megabytes)
    include(ready_routes(readiness, workers, dependencies.warming))
    include(metrics_routes(dependencies.metrics, metrics_keys, is_open=settings.metrics_open))
    include(symbols_routes(dependencies.start_lines, quotas, bodies, submit_keys, settings))
    rules = RulesFolder(settings.rules_dir)
    programs = ProgramUploads(binaries, quotas, bodies, settings)
    include(binaries_routes(programs, submit_keys, merge_keys, settings.default_service))
    budget = settings.output_budget
    merges = Merges(store, tasks, dependencies.locks, dependencies.kept_merges, budget)
    reports = Reports(store, tasks, rules, binaries, budget)
    include(merge_routes(merges, rules, binaries, merge_keys, settings.default_service))
    include(report_routes(reports, bodies, merge_keys, settings))
    releases = AllReleases(merges, reports, rules, binaries, settings)
    include(release_routes(releases, merge_keys, settings.default_service))
    include(releases_routes(releases, merge_keys, settings.default_service))
    include(inventory_routes(store, merge_keys, settings.default_service))
    fleet = Fleet(store, tasks, budget, int(settings.pages_megabytes * (1 << 20)))
    overviews = Overviews(store, fleet, settings.release_days)
    include(overview_routes(overviews, merge_keys))
    summaries, links = Summaries(store.catalog), SourceLinks(settings.source_links)
    include(query_routes(fleet, summaries, links, merge_keys, settings.default_service))
    include(flame_routes(fleet, merge_keys, settings.default_service))
    include(unnamed_routes(fleet, merge_keys, settings.default_service))
    profiles = Profiles(store, workers)
    parts = Parts(
        settings=settings,
        submit_keys=submit_keys,
        merge_keys=merge_keys,
        submits=submits,
        merges=merges,
        rules=rules,
        readiness=readiness,
        start_lines=dependencies.start_lines.tables,
        profiles=profiles,
        reading=Reading(profiles, fleet, merges, rules),
        messages=Messages(bodies),
        binaries=binaries,
        uploads=AgentUploads(programs),
    )
    for protocol in PROTOCOLS:
        for routes in protocol.routes(parts):
            include(routes)
    traces = KeptTraces(store.folder.path, budget)
    include(traces_routes(traces, merge_keys))
    include(report_of_trace_routes(dependencies.tracing))
    include(openapi_routes())
    sources = Sources(
        sessions=Sessions(dependencies.tokens, store),
        throttle=SignInThrottle(settings.sign_in_attempts),
        rendering=Rendering(bulk_progress),
        fleet=fleet,
        overviews=overviews,
        live=LiveStreams(summaries, settings.live_streams, dependencies.stopping),
        captures=_captures(settings, submits, dependencies.stopping),
        example=Example(store, tasks, dependencies.locks, submits),
        activities=Activities(fleet, summaries),
        traces=traces,
        inventory=Inventory(store.catalog),
        summaries=summaries,
        source_links=links,
        reports=reports,
        merges=merges,
        rules=rules,
        binaries=binaries,
        has_speedscope=has_speedscope(),
        opened=dependencies.files,
        bodies=bodies,
        form_bound=BodyBound(MOST_AT_ONCE * settings.largest_body, LARGEST_BODY),
    )
    mount_site(app, sources, _of_files(sources, dependencies.files, settings))
    install_error_handlers(app, DIALECTS, sources.inventory.nearest_service)
    layers = dependencies.metrics.around(AccessLog(DrainBody(AnswerCancelled(app, DIALECTS))), app, SUBMITS)
    return dependencies.tracing.around(layers, partial(describer, app))


def _of_files(sources: Sources, files: OpenedFiles, settings: Settings) -> Sources:
    """Return the sources of the pages of opened files."""
    store, budget = files.store, settings.output_budget
    fleet, summaries = Fleet(store, files.tasks, budget, _KEPT_ANSWERS_BYTES), Summaries(store.catalog)
    return replace(
        sources,
        sessions=SessionsOfFiles(sources.sessions.tokens, sources.reports.store, files),
        fleet=fleet,
        activities=Activities(fleet, summaries),
        inventory=Inventory(store.catalog),
        summaries=summaries,
        reports=Reports(store, files.tasks, sources.rules, sources.binaries, budget),
        merges=Merges(store, files.tasks, files.locks, files.kept_merges, budget),
        is_of_files=True,
    )


def _captures(settings: Settings, submits: Submits, stopping: asyncio.Event) -> Captures:
    targets = parse_targets(settings.capture_targets)
    return CapturesOfTargets(targets, settings, submits, stopping) if targets else NoCaptures()
