"""Requests that are cancelled: reads whose client has gone, and what a server can't finish when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pgo_collector.errors import Stopping
from pgo_collector.http.problems import CLIENT_CLOSED_REQUEST, Dialect, error_answer


class AnswerCancelled:
    """An ASGI layer that answers requests which the server cancels, as it stops and has waited long enough.

    They are answered with 503, so that a client, or the proxy, sends them again. An answer that has begun is
    cut off.
    """

    def __init__(self, app: ASGIApp, dialects: Sequence[Dialect]) -> None:
        self._app = app
        self._dialects = dialects

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; answer it if it is cancelled."""
        has_begun = False

        async def note_and_send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, note_and_send)
        except asyncio.CancelledError:
            if not has_begun:
                error = Stopping("the server stops, and the request took too long: send it again")
                await error_answer(Request(scope), error, self._dialects)(scope, receive, send)


class CancelAbandoned:
    """An ASGI layer that cancels GET and HEAD requests whose client has gone, so that none waits for them.

    Requests of other methods always run to their end.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; cancel a GET or HEAD when the connection closes before its answer is sent."""
        task = asyncio.current_task()
        if task is None or scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"}:
            await self._app(scope, receive, send)
            return
        is_gone = is_answered = has_begun = False
        # The task's cancellations before this layer's. Python 3.11 leaves one when a TaskGroup has failed.
        earlier = 0

        async def watch() -> None:
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

        watching = asyncio.create_task(watch())
        try:
            await self._app(scope, receive, note_and_send)
        except asyncio.CancelledError:
            if not is_gone or task.uncancel() > earlier:
                raise
            if not has_begun:  # no client receives this; it is for the access log
                await Response(status_code=CLIENT_CLOSED_REQUEST)(scope, receive, send)
        finally:
            watching.cancel()
