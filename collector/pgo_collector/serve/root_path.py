"""The outermost layer, if a proxy serves this server below a path: requests lose the path, links get it.

It doesn't matter whether the proxy removes its path from those of requests. All routes and layers inside see
their own paths, and `RequestContext.root_path` has what links begin with.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from pgo_collector.errors import HeaderInvalid
from pgo_collector.http.auth import context_of
from pgo_collector.model.root_path import is_in, parse_proxies, parse_root_path
from pgo_collector.settings import Settings

HEADER = "X-Forwarded-Prefix"


class BelowRootPath:
    """An ASGI layer that takes the root path from the paths of requests, and puts it into their contexts.

    The root path is that of the settings, or that which a trusted proxy tells in the header.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._root_path = settings.root_path
        self._proxies = parse_proxies(settings.trusted_proxies)

    @classmethod
    def around(cls, app: ASGIApp, settings: Settings) -> ASGIApp:
        """Return the application with the layer, or as it is if the settings know of no path."""
        return cls(app, settings) if settings.root_path or settings.trusted_proxies else app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; refuse it if a trusted proxy tells what is no path."""
        if scope["type"] == "http":
            try:
                root_path = self._root_path_of(Request(scope))
            except HeaderInvalid as error:
                # Not before, since this module is imported before the server listens.
                from pgo_collector.http.problems import error_answer  # noqa: PLC0415
                from pgo_collector.routes.protocols import DIALECTS  # noqa: PLC0415

                await error_answer(Request(scope), error, DIALECTS)(scope, receive, send)
                return
            context_of(scope).root_path = root_path
            path = scope["path"]
            if root_path and (path + "/").startswith(root_path + "/"):
                scope["path"] = path.removeprefix(root_path) or "/"
        await self._app(scope, receive, send)

    def _root_path_of(self, request: Request) -> str:
        told = ",".join(request.headers.getlist(HEADER))
        if not told or request.client is None or not is_in(self._proxies, request.client.host):
            return self._root_path
        try:
            return parse_root_path(told)
        except ValueError as error:
            raise HeaderInvalid(f"{HEADER}: {error}") from None
