"""/ui/file: open a file, or two to compare them, and look at them as at stored profiles."""

from __future__ import annotations

import time
from collections.abc import Mapping
from http import HTTPStatus
from math import isfinite

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pgo_collector.errors import FileRefused, PushInvalid
from pgo_collector.http.auth import context_of
from pgo_collector.http.forms import form_boundary, is_form
from pgo_collector.http.problems import describe_error
from pgo_collector.http.routing import Routes
from pgo_collector.submits.opened_files import MOST_OF_SESSION, OpenedFile, read_form
from pgo_collector.ui.forms import check_same_site
from pgo_collector.ui.links import OF_FILES, path_of, query_of, site_of
from pgo_collector.ui.pages.visitors import require_session, token_of
from pgo_collector.ui.sessions import session_of
from pgo_collector.ui.sources import Sources

_EXPECTED = "the form with a file"


def file_routes(sources: Sources) -> Routes:
    """Return the routes with the page, and the target of its form, which leads to the pages of the file."""
    routes = Routes(require_session(sources.sessions))

    async def page(
        request: Request,
        refused: str = "",
        status: HTTPStatus = HTTPStatus.OK,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        files = sources.opened.of(session_of(token_of(request)))
        return await sources.rendering.page(
            request,
            "file.html",
            status,
            headers,
            refused=refused,
            files=[(file, link_of_files(site_of(request), file)) for file in files],
            most=MOST_OF_SESSION,
            is_timed=isfinite(sources.opened.seconds),
            now=time.monotonic(),
        )

    @routes.get("/file")
    async def form(request: Request) -> Response:
        return await page(request)

    @routes.post("/file")
    async def open_files(request: Request) -> Response:
        check_same_site(request)
        content_type = request.headers.get("Content-Type", "")
        try:
            if not is_form(content_type):
                raise PushInvalid("send a form with a file, as the page does")
            async with sources.bodies.read(request, sources.form_bound, _EXPECTED) as body:
                context_of(request).body_bytes = body.size
                files = await sources.opened.open(
                    session_of(token_of(request)), read_form, body.content, form_boundary(content_type)
                )
        except FileRefused as refused:
            status, detail, headers = describe_error(request, refused.error)
            context_of(request).problem = type(refused.error).__name__
            return await page(request, f"{refused.name}: {detail}", status, headers)
        return RedirectResponse(link_of_files(site_of(request), *files), HTTPStatus.SEE_OTHER)

    return routes


def link_of_files(site: str, *files: OpenedFile) -> str:
    """Return the link to the flame graph of a file, or to the difference of the second one of two."""
    *bases, file = files
    query = {"type": file.type}
    if bases:
        query["base_service"] = bases[0].service
    return path_of(f"{site}{OF_FILES}/services", file.service, "diff" if bases else "") + query_of(query)
