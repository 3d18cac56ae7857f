"""/ui/example: the forms on the page of the fleet that load and remove an example."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pgo_collector.http.auth import check_scope
from pgo_collector.http.routing import Routes
from pgo_collector.submits.example import EXAMPLE_SERVICES
from pgo_collector.ui.forms import check_same_site
from pgo_collector.ui.links import site_of
from pgo_collector.ui.pages.visitors import require_session
from pgo_collector.ui.sources import Sources


def example_routes(sources: Sources) -> Routes:
    """Return the routes with the targets of both forms, which lead back to the page."""
    routes = Routes(require_session(sources.sessions))

    def check(request: Request) -> None:
        check_same_site(request)
        for service in EXAMPLE_SERVICES:
            check_scope(request, service)

    @routes.post("/example")
    async def load(request: Request) -> Response:
        check(request)
        await sources.example.load(request)
        return RedirectResponse(f"{site_of(request)}/", HTTPStatus.SEE_OTHER)

    @routes.post("/example/remove")
    async def remove(request: Request) -> Response:
        check(request)
        await sources.example.remove()
        return RedirectResponse(f"{site_of(request)}/", HTTPStatus.SEE_OTHER)

    return routes
