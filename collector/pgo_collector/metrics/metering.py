"""Metering: the ASGI middleware that measures each request: its duration, its status and its sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pgo_collector.http.auth import RequestContext, context_of

# Clients can send any path and method; a label value for each would fill the memory here and in Prometheus.
OTHER = "other"
_METHODS = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"}


@dataclass(frozen=True, slots=True)
class EndedRequest:
    """A request that has ended.

    `route` is the template of its route, or OTHER. `received` and `sent` are the sizes of the bodies in
    bytes.
    """

    route: str
    method: str
    status: int
    seconds: float
    received: int
    sent: int
    context: RequestContext


class Metering:
    """The outermost ASGI middleware around `app`; `record` is called with each request that has ended."""

    def __init__(self, layers: ASGIApp, app: Starlette, record: Callable[[EndedRequest], None]) -> None:
        self._app = layers
        self._record = record
        # By endpoint, since an included route knows only a part of its path.
        self._templates = route_templates(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and record it when it has ended."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        received = sent = 0
        status = 500  # the server's answer if the application gives none

        async def receive_and_count() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        async def send_and_count(message: Message) -> None:
            nonlocal status, sent
            status = message.get("status", status)
            sent += len(message.get("body", b""))
            await send(message)

        start = time.perf_counter()
        try:
            await self._app(scope, receive_and_count, send_and_count)
        finally:
            method = scope["method"]
            self._record(
                EndedRequest(
                    self._templates.get(scope.get("endpoint")) or OTHER,
                    method if method in _METHODS else OTHER,
                    status,
                    time.perf_counter() - start,
                    received,
                    sent,
                    context_of(scope),
                )
            )


def route_templates(app: Starlette) -> dict[Any, str]:
    """Return the path template of each endpoint, by which `scope["endpoint"]` is looked up."""
    return dict(_templates("", app.routes))


def _templates(prefix: str, routes: Sequence[BaseRoute]) -> Iterator[tuple[Any, str]]:
    """Yield the endpoint and path template of each route, also in mounted apps; a folder counts as one."""
    for route in routes:
        if isinstance(route, Mount):
            yield route.app, f"{prefix}{route.path}"
            yield from _templates(f"{prefix}{route.path}", route.routes)
        elif isinstance(route, Route):
            yield route.endpoint, f"{prefix}{route.path_format}"
