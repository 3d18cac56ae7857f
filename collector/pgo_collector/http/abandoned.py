"""Cancel GET and HEAD requests whose client has gone, so that no other request waits behind them."""

from __future__ import annotations

import asyncio

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pgo_collector.http.problems import CLIENT_CLOSED_REQUEST


class CancelAbandoned:
    """An ASGI layer that cancels abandoned reads. Requests of other methods always run to their end."""

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
