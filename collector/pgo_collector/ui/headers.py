"""The headers of every page: what a browser may do with it, which is nothing that a profile could ask for."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# No script or style but our files', none of them in a page; nothing from another host; no page in a frame.
PAGES = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# It writes its own styles, and has fonts and a decoder of one format in WebAssembly.
SPEEDSCOPE = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data: blob:; font-src 'self'; connect-src 'self';"
    " form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class PageHeaders:
    """An ASGI layer around some `routes`; what a route says of caching goes before what is said here."""

    def __init__(self, app: ASGIApp, policy: str = PAGES) -> None:
        self._app = app
        self.routes: list[BaseRoute] = getattr(app, "routes", [])
        self._headers = {"Content-Security-Policy": policy, "Cache-Control": "private, no-store", **_HEADERS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, and adds the headers to its answer."""

        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, add)
