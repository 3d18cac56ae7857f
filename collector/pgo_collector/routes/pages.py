"""GET and HEAD /ui: to the pages, which are below it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route


def pages_route() -> Route:
    """The route, which asks for no key: the pages do."""
    return Route("/ui", _to_pages, methods=["GET", "HEAD"], include_in_schema=False)


async def _to_pages(_: Request) -> Response:
    return RedirectResponse("/ui/")
