"""Drain the body of a request that is answered early: the rest of the body is read and dropped, for a while.

Closing a connection with unread data resets it, and the client may then lose the answer. nginx, for example,
sends the whole body before it reads the answer, and would turn a 403 into a 502.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LONGEST_SECONDS = 10.0
_MOST_BYTES = 64 << 20


class DrainBody:
    """Read what a route left of the request body before the answer ends."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and drain what the application leaves unread of its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_unread = _has_body(scope)

        async def note_and_receive() -> Message:
            nonlocal is_unread
            message = await receive()
            is_unread = message.get("more_body", False)
            return message

        async def drain_and_send(message: Message) -> None:
            if is_unread and message["type"] == "http.response.body" and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await _drop_rest(receive)
                message = {"type": "http.response.body"}
            await send(message)

        await self._app(scope, note_and_receive, drain_and_send)


def _has_body(scope: Scope) -> bool:
    """Return whether a body is on its way. It isn't while the client waits for `100 Continue`."""
    headers: dict[bytes, bytes] = dict(scope["headers"])
    is_announced = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
    return is_announced and headers.get(b"expect", b"").lower() != b"100-continue"


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
