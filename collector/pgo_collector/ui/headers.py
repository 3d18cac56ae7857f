"""Security headers of every page: nothing in a profile can make a browser run or load anything."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Scripts and styles come from this server's files only, none is inline; nothing comes from another host; no
# page is shown in a frame.
PAGES_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# speedscope has inline styles, fonts, and a decoder of one format in WebAssembly.
SPEEDSCOPE_POLICY = (
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
    """ASGI middleware that adds the headers to responses; a route's own Cache-Control stays."""

    def __init__(self, app: ASGIApp, policy: str = PAGES_POLICY) -> None:
        self._app = app
        self.routes: list[BaseRoute] = getattr(app, "routes", [])
        self._headers = {"Content-Security-Policy": policy, "Cache-Control": "private, no-store", **_HEADERS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add the headers to its response."""

        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, add)
