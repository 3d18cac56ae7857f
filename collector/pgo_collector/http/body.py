"""Request bodies: streamed to a file, or held where they are small, bounded in size and in time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request

from pgo_collector.errors import BodyTooLarge, BodyTooSlow, EmptyBody
from pgo_collector.store.store import not_stored

# Most profiles are smaller, and are written at once.
_WRITE_BYTES = 512 << 10
# No more than the server may have read ahead of a connection anyway.
_HELD_BYTES = 64 << 10


class Body(NamedTuple):
    """Its size in bytes, and all of it if it is held; else it is in the file."""

    size: int
    held: bytes | None


async def take_body(request: Request, part: Path, limit: int, seconds: float, what: str) -> Body:
    """Takes the body, which is to be what `what` says; one that isn't small goes to the new file `part`.

    Raises EmptyBody, BodyTooLarge (without reading, where the length is declared), BodyTooSlow,
    NotStored, and ClientDisconnect.
    """
    if int(request.headers.get("Content-Length", 0)) > limit:
        raise BodyTooLarge(f"the body is larger than {limit:,} bytes")
    try:
        async with asyncio.timeout(seconds):
            body = await _spool(request, part, limit)
    except TimeoutError:
        raise BodyTooSlow(f"the body took longer than {seconds:g} seconds") from None
    except OSError as error:
        raise not_stored("body", error) from error
    if not body.size:
        raise EmptyBody(f"the body is empty; send {what}")
    return body


async def write_body(request: Request, part: Path, limit: int, seconds: float, what: str) -> int:
    """As `take_body`, and to the file even if it is small; its size."""
    body = await take_body(request, part, limit, seconds, what)
    if body.held is not None:
        try:
            await asyncio.to_thread(_append, part, body.held)
        except OSError as error:
            raise not_stored("body", error) from error
    return body.size


async def _spool(request: Request, part: Path, limit: int) -> Body:
    size, buffer = 0, bytearray()
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise BodyTooLarge(f"the body is larger than {limit:,} bytes")
        buffer += chunk
        if len(buffer) >= _WRITE_BYTES:
            await asyncio.to_thread(_append, part, buffer)
            buffer = bytearray()
    if size <= _HELD_BYTES:
        return Body(size, bytes(buffer))
    await asyncio.to_thread(_append, part, buffer)
    return Body(size, None)


def _append(part: Path, content: bytes | bytearray) -> None:
    with part.open("ab") as file:
        file.write(content)
