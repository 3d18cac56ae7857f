"""Reads on after an early answer, so that whoever is still sending gets to see it.

A refusal is sent before the body is read. If the connection were closed then, with bytes underway, the
kernel would reset it, and a proxy would make a 502 of our 403. Go's server lingers for the same reason.
"""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MOST_BYTES = 64 << 20
_MOST_SECONDS = 5.0


class Lingering:
    """An ASGI layer: the answer goes out at once, and counts as ended when the body has, within bounds."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if scope["type"] != "http" or not _has_body(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        ended = False

        async def note_end() -> Message:
            nonlocal ended
            message = await receive()
            ended = not message.get("more_body", False)  # nor has a disconnect
            return message

        async def read_on() -> None:
            left = _MOST_BYTES
            while not ended and left > 0:
                left -= len((await note_end()).get("body", b""))

        async def send_first(message: Message) -> None:
            last = message["type"] == "http.response.body" and not message.get("more_body", False)
            if last and not ended:
                await send({**message, "more_body": True})
                try:
                    async with asyncio.timeout(_MOST_SECONDS):
                        await read_on()
                except TimeoutError:
                    pass
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        await self._app(scope, note_end, send_first)


def _has_body(headers: Headers) -> bool:
    return "Transfer-Encoding" in headers or headers.get("Content-Length", "0") != "0"
