"""Layers around the application: the access log, and the requests that are cancelled.

A read is cancelled when its client has gone; any request is, when the server stops and has waited for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pgo_collector.errors import Stopping
from pgo_collector.http.context import context_of
from pgo_collector.http.problems import CLIENT_CLOSED_REQUEST, Dialect, error_answer

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


class AnswerCancelled:
    """An ASGI layer that answers requests which are cancelled, unless their answer has begun.

    GET and HEAD requests whose client has gone are cancelled here, so that none waits for them; requests of
    other methods always run to their end. Requests that the server cancels, as it stops and has waited long
    enough, are answered with 503, so that a client, or the proxy, sends it again.
    """

    def __init__(self, app: ASGIApp, dialects: Sequence[Dialect]) -> None:
        self._app = app
        self._dialects = dialects

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; answer it if it is cancelled."""
        task = asyncio.current_task()
        watching = None
        is_gone = has_begun = is_answered = False
        # The task's cancellations before this layer's. Python 3.11 leaves one when a TaskGroup has failed.
        earlier = 0

        async def watch(task: asyncio.Task[object]) -> None:
            nonlocal is_gone, earlier
            while (await receive())["type"] != "http.disconnect":
                pass  # a body, which a GET or HEAD has no use for
            if not is_answered:  # once it is answered, the server always sends a disconnect
                is_gone, earlier = True, task.cancelling()
                task.cancel()

        async def note_and_send(message: Message) -> None:
            nonlocal has_begun, is_answered
            has_begun = True
            is_answered = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        if task is not None and scope["type"] == "http" and scope["method"] in {"GET", "HEAD"}:
            watching = asyncio.create_task(watch(task))
        try:
            await self._app(scope, receive, note_and_send)
        except asyncio.CancelledError:
            answer: ASGIApp
            if is_gone and task is not None and task.uncancel() <= earlier:
                answer = Response(
                    status_code=CLIENT_CLOSED_REQUEST
                )  # for the access log: the client has gone
            else:
                error = Stopping("the server stops, and the request took too long: send it again")
                answer = error_answer(Request(scope), error, self._dialects)
            if not has_begun:
                await answer(scope, receive, send)
        finally:
            if watching is not None:
                watching.cancel()
