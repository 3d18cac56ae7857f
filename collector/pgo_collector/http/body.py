"""Request bodies: streamed to a file, bounded in size and in time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from starlette.requests import Request

from pgo_collector.errors import BodyTooLarge, BodyTooSlow, EmptyBody
from pgo_collector.store.store import not_stored

# Most profiles are smaller, and are written at once.
_WRITE_BYTES = 512 << 10


async def write_body(request: Request, part: Path, limit: int, seconds: float, what: str) -> int:
    """Writes the body, which is to be what `what` says, to the new file `part`; its size in bytes.

    Raises EmptyBody, BodyTooLarge (without reading, where the length is declared), BodyTooSlow,
    NotStored, and ClientDisconnect.
    """
    if int(request.headers.get("Content-Length", 0)) > limit:
        raise BodyTooLarge(f"the body is larger than {limit:,} bytes")
    try:
        async with asyncio.timeout(seconds):
            size = await _spool(request, part, limit)
    except TimeoutError:
        raise BodyTooSlow(f"the body took longer than {seconds:g} seconds") from None
    except OSError as error:
        raise not_stored("body", error) from error
    if not size:
        raise EmptyBody(f"the body is empty; send {what}")
    return size


async def _spool(request: Request, part: Path, limit: int) -> int:
    size, buffer = 0, bytearray()
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise BodyTooLarge(f"the body is larger than {limit:,} bytes")
        buffer += chunk
        if len(buffer) >= _WRITE_BYTES:
            await asyncio.to_thread(_append, part, buffer)
            buffer = bytearray()
    await asyncio.to_thread(_append, part, buffer)
    return size


def _append(part: Path, content: bytes | bytearray) -> None:
    with part.open("ab") as file:
        file.write(content)
