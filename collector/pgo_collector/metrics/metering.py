"""The layer that measures requests: how many, how long, how large."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pgo_collector.http.context import RequestContext, context_of

# Anybody can make up paths and methods; a label for each would fill the memory, here and in Prometheus.
OTHER = "other"
_METHODS = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"}


@dataclass(frozen=True, slots=True)
class Answered:
    """A request that has ended: its route's template, or OTHER; the bytes of both bodies; and its context."""

    route: str
    method: str
    status: int
    seconds: float
    received: int
    sent: int
    context: RequestContext


class Metering:
    """An ASGI layer, to be the outermost one, around the routes of `app`."""

    def __init__(self, layers: ASGIApp, app: FastAPI, tell: Callable[[Answered], None]) -> None:
        self._app = layers
        self._tell = tell
        # By what they call, since a route that was included knows only a part of its path.
        self._templates = dict(_templates("", app.routes))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, and tells of it when it is done."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        received = sent = 0
        status = 500  # what the server answers if the application doesn't

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
            self._tell(
                Answered(
                    self._templates.get(scope.get("endpoint")) or OTHER,
                    method if method in _METHODS else OTHER,
                    status,
                    time.perf_counter() - start,
                    received,
                    sent,
                    context_of(scope),
                )
            )


def _templates(prefix: str, routes: Sequence[BaseRoute]) -> Iterator[tuple[Any, str]]:
    """What each route calls, and its template; of what is mounted too, files of a folder as one."""
    for route in routes:
        if isinstance(route, Mount):
            yield route.app, f"{prefix}{route.path}"
            yield from _templates(f"{prefix}{route.path}", route.routes)
        else:
            for context in iter_route_contexts([route]):
                yield context.endpoint, f"{prefix}{context.path_format}"
