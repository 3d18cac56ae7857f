"""A response whose body is an open file, sent as fast as the client reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import BinaryIO

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pgo_collector.http.etags import matches, quoted
from pgo_collector.http.left_out import HEADER, left_out_header
from pgo_collector.merges.open_merge import OpenMerge

_CHUNK_BYTES = 512 << 10


class Download(Response):
    """Sends `size` bytes of `file` and closes it; to HEAD only the headers."""

    def __init__(self, file: BinaryIO, size: int, media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(None, headers={**headers, "Content-Length": str(size)}, media_type=media_type)
        self._file = file
        self._size = size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Streams the file as an ASGI response."""
        with self._file:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            left = 0 if scope["method"] == "HEAD" else self._size
            while left and (chunk := await asyncio.to_thread(self._file.read, min(left, _CHUNK_BYTES))):
                left -= len(chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def merge_download(
    request: Request, made: OpenMerge, filename: str, media_type: str = "application/octet-stream"
) -> Response:
    """A merge to be saved under that name; 304 to a GET or HEAD of a client that has it already."""
    request.state.profile = made.etag
    headers = {"ETag": quoted(made.etag), "Cache-Control": "private, no-cache"}
    if made.left_out:
        headers[HEADER] = left_out_header(made.left_out)
    if request.method != "POST" and matches(request.headers.get("If-None-Match", ""), made.etag):
        made.file.close()
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    headers["Content-Disposition"] = f'attachment; filename="{filename}"'
    return Download(made.file, made.size, media_type, headers)
