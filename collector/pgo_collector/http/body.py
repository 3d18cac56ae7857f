"""Request bodies: streamed to a file, or held where they are small; bounded in size, time, memory, disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiofiles
from pprof_merge import trim_heap
from starlette.requests import Request

from pgo_collector.errors import BodyTooLarge, BodyTooSlow, EmptyBody, IncomingFull
from pgo_collector.settings import Settings
from pgo_collector.store.store import not_stored

# Most profiles are smaller, and are written at once.
_WRITE_BYTES = 512 << 10
# What is written at once when memory is short.
_SMALL_WRITE_BYTES = 16 << 10
# No more than the server may have read ahead of a connection anyway.
_HELD_BYTES = 64 << 10
# Free pages are given back so long after bodies had so much.
_TRIM_BYTES = 8 << 20
_TRIM_SECONDS = 1.0


class Body(NamedTuple):
    """Its size in bytes, and all of it if it is held; else it is in the file."""

    size: int
    held: bytes | None


class Bodies:
    """Takes the bodies of requests, with bounds on the memory and the disk that they have together."""

    def __init__(self, settings: Settings) -> None:
        self._seconds = settings.body_timeout
        self._memory = _Memory(settings.body_memory_bytes)
        self._disk = _Disk(settings.incoming_megabytes)

    @asynccontextmanager
    async def take(self, request: Request, part: Path, limit: int, what: str) -> AsyncIterator[Body]:
        """Take the body, which is to be what `what` says; one that isn't small goes to the new file `part`.

        What is held counts as memory of bodies until the block ends, and its file as theirs on disk. Raises
        EmptyBody, BodyTooLarge (without reading, where the length is declared), BodyTooSlow, IncomingFull,
        NotStored, and ClientDisconnect.
        """
        share = _Share(self._memory, self._disk)
        try:
            body = await self._read(request, part, limit, share)
            if not body.size:
                raise EmptyBody(f"the body is empty; send {what}")
            yield body
        finally:
            share.release()
            self._disk.used -= share.on_disk

    async def write(self, request: Request, part: Path, limit: int, what: str) -> int:
        """As `take`, and to the file even if it is small; its size."""
        async with self.take(request, part, limit, what) as body:
            if body.held is not None:
                try:
                    await _append(part, body.held)
                except OSError as error:
                    raise not_stored("body", error) from error
            return body.size

    async def _read(self, request: Request, part: Path, limit: int, share: _Share) -> Body:
        if int(request.headers.get("Content-Length", 0)) > limit:
            raise BodyTooLarge(f"the body is larger than {limit:,} bytes")
        try:
            async with asyncio.timeout(self._seconds):
                return await _spool(request, part, limit, share)
        except TimeoutError:
            raise BodyTooSlow(f"the body took longer than {self._seconds:g} seconds") from None
        except OSError as error:
            raise not_stored("body", error) from error


class _Memory:
    """What all bodies have of memory, in bytes, and how much that may be."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._used = 0
        self._peak = 0

    @property
    def is_short(self) -> bool:
        """Whether half is used: the other half is for what arrives until that is written."""
        return self._used > self._most // 2

    def use(self, more: int) -> None:
        """Count so much more, or less."""
        self._used += more
        self._peak = max(self._peak, self._used)
        if self._peak > _TRIM_BYTES and self._used < self._peak // 4:
            self._peak = self._used
            asyncio.get_running_loop().call_later(_TRIM_SECONDS, trim_heap)


class _Disk:
    """What the files of all bodies have, in bytes, and how much that may be."""

    def __init__(self, most_megabytes: float) -> None:
        self._most_megabytes = most_megabytes
        self.used = 0

    def use(self, more: int) -> None:
        """Count so much more. Raises IncomingFull."""
        if self.used + more > self._most_megabytes * (1 << 20):
            raise IncomingFull(
                f"the bodies that are arriving take {self._most_megabytes:g} MiB of disk, as much as they may"
                " (PGOF_INCOMING_MEGABYTES); send it again later"
            )
        self.used += more


class _Share:
    """What one body has of both; `on_disk` is the size of its file."""

    def __init__(self, memory: _Memory, disk: _Disk) -> None:
        self._memory = memory
        self._disk = disk
        self._used = 0
        self.on_disk = 0

    @property
    def most(self) -> int:
        """How much the body may have before it is to be written."""
        return _SMALL_WRITE_BYTES if self._memory.is_short else _WRITE_BYTES

    def use(self, more: int) -> None:
        """Count so much more."""
        self._used += more
        self._memory.use(more)

    def write(self, more: int) -> None:
        """Count so much more on disk. Raises IncomingFull."""
        self._disk.use(more)
        self.on_disk += more

    def release(self) -> None:
        """Have no memory any more."""
        self.use(-self._used)


async def _spool(request: Request, part: Path, limit: int, share: _Share) -> Body:
    """Read a body; one that outgrows memory goes to the file on the way, a buffer at a time."""
    size, buffer = 0, bytearray()
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise BodyTooLarge(f"the body is larger than {limit:,} bytes")
        buffer += chunk
        share.use(len(chunk))
        if len(buffer) >= share.most:
            share.write(len(buffer))
            await _append(part, buffer)
            share.release()
            buffer = bytearray()
    if size == len(buffer) <= _HELD_BYTES:
        return Body(size, bytes(buffer))
    if buffer:
        share.write(len(buffer))
        await _append(part, buffer)
        share.release()
    return Body(size, None)


async def _append(part: Path, content: bytes | bytearray) -> None:
    """Append to a file. It isn't kept open: a slow client would hold a second descriptor."""
    async with aiofiles.open(part, "ab") as file:
        await file.write(content)
