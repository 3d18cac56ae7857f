"""The site: all pages as one ASGI application, which is imported at the first request to it by `mounting`."""

from __future__ import annotations

from pprof_merge import ProfileError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Router

from pgo_collector.errors import KeyOutOfScope, KeyRefused, NoSuchFile, Refusal
from pgo_collector.http.problems import CLIENT_CLOSED_REQUEST, describe_error
from pgo_collector.submits.opened_files import NOT_OPEN
from pgo_collector.ui.headers import SPEEDSCOPE_POLICY, PageHeaders
from pgo_collector.ui.links import OF_FILES, services_of, site_of
from pgo_collector.ui.pages.build import build_routes
from pgo_collector.ui.pages.choose import choose_routes
from pgo_collector.ui.pages.diff import diff_routes
from pgo_collector.ui.pages.example import example_routes
from pgo_collector.ui.pages.file import file_routes
from pgo_collector.ui.pages.flame import flame_routes
from pgo_collector.ui.pages.function import function_routes
from pgo_collector.ui.pages.latency import latency_routes
from pgo_collector.ui.pages.live import live_routes
from pgo_collector.ui.pages.merge import merge_routes
from pgo_collector.ui.pages.series import series_routes
from pgo_collector.ui.pages.services import services_routes
from pgo_collector.ui.pages.top import top_routes
from pgo_collector.ui.pages.traces import traces_pages
from pgo_collector.ui.pages.unnamed import unnamed_routes
from pgo_collector.ui.pages.visitors import redirect_to_sign_in, visitor_routes
from pgo_collector.ui.rendering import SPEEDSCOPE, STATIC, Assets
from pgo_collector.ui.sources import Sources

_PAGES = (
    services_routes,
    example_routes,
    flame_routes,
    live_routes,
    top_routes,
    diff_routes,
    function_routes,
    series_routes,
    unnamed_routes,
    latency_routes,
    build_routes,
    choose_routes,
    merge_routes,
    traces_pages,
    file_routes,
)
_PAGES_OF_FILES = (flame_routes, top_routes, diff_routes, function_routes, merge_routes)


def site(sources: Sources, of_files: Sources) -> PageHeaders:
    """Return the application: the pages, their files, and speedscope if it was built.

    The pages of opened files have the sources `of_files`.
    """
    app = Starlette()
    app.router.redirect_slashes = False
    visitors = visitor_routes(sources.sessions, sources.throttle, sources.rendering)
    for each in (visitors, *(page(sources) for page in _PAGES)):
        app.router.routes.extend(each.routes)
    opened = Router([route for page in _PAGES_OF_FILES for route in page(of_files).routes])
    app.mount(OF_FILES, PageHeaders(opened))
    app.mount("/static", Assets(directory=STATIC))
    if sources.has_speedscope:
        app.mount("/speedscope", PageHeaders(Assets(directory=SPEEDSCOPE), SPEEDSCOPE_POLICY))

    async def answer(request: Request, error: Exception) -> Response:
        if isinstance(error, ClientDisconnect):
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        if isinstance(error, KeyRefused):
            return redirect_to_sign_in(request)
        if isinstance(error, KeyOutOfScope) and services_of(request) != f"{site_of(request)}/services":
            error = NoSuchFile(NOT_OPEN)
        status, detail, headers = describe_error(request, error)
        return await sources.rendering.page(
            request, "problem.html", status, headers, title=status.phrase, detail=detail
        )

    for kind in (Refusal, ProfileError, HTTPException, ClientDisconnect, Exception):
        app.add_exception_handler(kind, answer)
    return PageHeaders(app)
