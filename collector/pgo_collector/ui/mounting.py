"""The pages below /ui, which are imported at the first request to one of them."""

from __future__ import annotations

from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pgo_collector.http.routing import OnFirstRequest, Site
from pgo_collector.ui.links import site_of
from pgo_collector.ui.sources import Sources


def mount_site(app: Starlette, sources: Sources, of_files: Sources) -> None:
    """Serve the site below /ui; /ui itself redirects to it, and so does / if a browser asks.

    The pages of opened files have the sources `of_files`.
    """

    def made() -> Site:
        from pgo_collector.ui.site import site  # noqa: PLC0415 - most requests aren't to a page

        return site(sources, of_files)

    app.router.routes.append(Route("/", _redirect_browser, methods=["GET", "HEAD"]))
    app.router.routes.append(Route("/ui", _redirect_to_site, methods=["GET", "HEAD"]))
    app.mount("/ui", OnFirstRequest(made))


async def _redirect_browser(request: Request) -> Response:
    if "text/html" not in request.headers.get("Accept", ""):
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return await _redirect_to_site(request)


async def _redirect_to_site(request: Request) -> Response:
    return RedirectResponse(f"{site_of(request)}/")
