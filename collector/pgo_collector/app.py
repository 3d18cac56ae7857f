"""The application: the routes over a store, as one ASGI callable."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.types import ASGIApp

from pgo_collector.http import problems
from pgo_collector.http.access_log import AccessLog
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.lingering import Lingering
from pgo_collector.merges.rules_folder import RulesFolder
from pgo_collector.merges.series_merge import SeriesMerge
from pgo_collector.releases.candidates import Candidates
from pgo_collector.releases.series_release import SeriesRelease
from pgo_collector.releases.series_report import SeriesReport
from pgo_collector.routes.health import health_route
from pgo_collector.routes.merge import merge_routes
from pgo_collector.routes.release import release_routes
from pgo_collector.routes.releases import releases_routes
from pgo_collector.routes.report import report_routes
from pgo_collector.routes.submit import submit_routes
from pgo_collector.settings import Settings
from pgo_collector.store.blobs import Series
from pgo_collector.store.store import Store


def series_of(settings: Settings) -> Series:
    """The series of pgo-fleet's routes, whose clients name none."""
    return Series(settings.default_service, "cpu")


def create_app(settings: Settings, store: Store, submit_keys: KeyFile, merge_keys: KeyFile) -> ASGIApp:
    """The whole of the HTTP interface. Paths are exact, and there are no pages but these."""
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    series = series_of(settings)
    app.router.routes.append(health_route())
    app.include_router(submit_routes(store, series, submit_keys, settings.limits, settings.body_timeout))
    rules = RulesFolder(settings.rules_dir)
    merge, report = SeriesMerge(store, series), SeriesReport(store, series)
    app.include_router(merge_routes(merge, rules, merge_keys))
    app.include_router(report_routes(report, merge_keys, settings.max_inflated_bytes, settings.body_timeout))
    releases = SeriesRelease(store, Candidates(store, merge, rules), report, settings)
    app.include_router(release_routes(releases, merge_keys))
    app.include_router(releases_routes(releases, merge_keys))
    problems.install(app)
    return AccessLog(Lingering(app))
