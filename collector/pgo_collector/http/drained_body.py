"""Answers that come before the request's body has: the rest of that is read and dropped, for a while.

To close a connection with something unread resets it, and the answer may be lost on its way: nginx, which
sends the whole body before it reads, makes a 502 of our 403.
"""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LONGEST_SECONDS = 10.0
_MOST_BYTES = 64 << 20


class Lingering:
    """An ASGI layer. The answer isn't held back, only its end, after which the server may close."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, and takes in what the application leaves of its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        unread = _is_sent_unasked(scope)

        async def receive_and_note() -> Message:
            nonlocal unread
            message = await receive()
            unread = message.get("more_body", False)
            return message

        async def linger_and_send(message: Message) -> None:
            if unread and message["type"] == "http.response.body" and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await _drop_rest(receive)
                message = {"type": "http.response.body"}
            await send(message)

        await self._app(scope, receive_and_note, linger_and_send)


def _is_sent_unasked(scope: Scope) -> bool:
    """Whether a body is on its way, which it isn't if the client waits for `100 Continue`."""
    headers = Headers(scope=scope)
    announced = "Transfer-Encoding" in headers or headers.get("Content-Length", "0") != "0"
    return announced and headers.get("Expect", "").lower() != "100-continue"


async def _drop_rest(receive: Receive) -> None:
    dropped = 0
    try:
        async with asyncio.timeout(_LONGEST_SECONDS):
            while dropped < _MOST_BYTES:
                message = await receive()
                if not message.get("more_body", False):
                    return
                dropped += len(message["body"])
    except TimeoutError:
        return
