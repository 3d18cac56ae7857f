"""The access log: one line for each request, with its key, method, path, status and duration."""

from __future__ import annotations

import time

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pgo_collector.http.context import context_of

_LONGEST_PATH = 200
_log = structlog.get_logger()


class AccessLog:
    """An ASGI layer that logs requests, and errors that the application raises after it has answered 500."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and log it when it is done."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = None

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note_status)
        except Exception:
            if status is None:
                raise
            _log.exception("unexpected error")
        finally:
            _log.info(
                "request",
                method=scope["method"],
                path=scope["path"][:_LONGEST_PATH],
                status=status,
                ms=round((time.perf_counter() - start) * 1000, 1),
                **context_of(scope).log_fields,
            )
