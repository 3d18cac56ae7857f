"""/healthz: the process is up and its event loop turns."""

from __future__ import annotations

from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send


class _Health:
    """An ASGI application and not a function, since the router gives functions a fixed set of methods."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("OK")(scope, receive, send)


def health_route() -> Route:
    """Answers any method, without a key."""
    return Route("/healthz", _Health())
