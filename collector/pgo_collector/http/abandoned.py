"""Requests whose client has gone: what only reads is cancelled, so that no other request waits behind it."""

from __future__ import annotations

import asyncio

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pgo_collector.http.problems import CLIENT_CLOSED_REQUEST


class CancelAbandoned:
    """An ASGI layer. A request that may change something is done to its end, whoever waits for the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; cancel a GET or HEAD when the connection closes before its answer is sent."""
        task = asyncio.current_task()
        if task is None or scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"}:
            await self._app(scope, receive, send)
            return
        is_gone = is_answered = has_begun = False

        async def watch() -> None:
            nonlocal is_gone
            while (await receive())["type"] != "http.disconnect":
                pass  # a body, which no such request has any use for
            if not is_answered:  # after that the server says the same of any request
                is_gone = True
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
            if not is_gone or task.uncancel():
                raise
            if not has_begun:  # nobody receives this; the log line shows it
                await Response(status_code=CLIENT_CLOSED_REQUEST)(scope, receive, send)
        finally:
            watching.cancel()
