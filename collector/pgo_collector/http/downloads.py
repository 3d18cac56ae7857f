"""A response whose body is an open file, sent as fast as the client reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import BinaryIO

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

_CHUNK_BYTES = 256 << 10


class Download(Response):
    """Sends `size` bytes of `file` and closes it; to HEAD only the headers."""

    def __init__(self, file: BinaryIO, size: int, media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(None, headers={**headers, "Content-Length": str(size)}, media_type=media_type)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Streams the file as an ASGI response."""
        with self._file:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while scope["method"] != "HEAD" and (
                chunk := await asyncio.to_thread(self._file.read, _CHUNK_BYTES)
            ):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
