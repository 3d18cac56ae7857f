"""Request bodies: read into memory if small, else into a file, with bounds on size, time, memory and disk.

Routes that take a body call `BodyReader` before they do anything else with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from pprof_merge import trim_heap
from starlette.requests import Request

from pgo_collector.errors import BodyTooLarge, BodyTooSlow, EmptyBody, IncomingFull
from pgo_collector.settings import Settings
from pgo_collector.store.store import not_stored
from pgo_collector.traces.spans import span

# How much of a body is buffered before it is written; most profiles are smaller, so they need one write.
_BUFFER_BYTES = 512 << 10
# The same while memory is short.
_SMALL_BUFFER_BYTES = 16 << 10
# The largest body that stays in memory. The server may have read as much ahead of a connection anyway.
_IN_MEMORY_BYTES = 64 << 10
# Once bodies have taken this much memory and have freed most of it, free pages go back to the system, so
# many seconds later.
_TRIM_BYTES = 8 << 20
_TRIM_SECONDS = 1.0


class BodyBound(NamedTuple):
    """The largest body that a route takes, in bytes, and the settings to name in messages, if any set it."""

    size: int
    setting: str = ""

    def check(self, size: int) -> None:
        """Raise BodyTooLarge if a body has more bytes."""
        if size > self.size:
            where = f" ({self.setting})" if self.setting else ""
            raise BodyTooLarge(f"the body is larger than {self.size:,} bytes{where}")


class Body(NamedTuple):
    """A body that was read: its size in bytes, and its `content`, or None if it is in the file."""

    size: int
    content: bytes | None


class BodyReader:
    """Reads request bodies, within bounds on the memory and the disk that all of them take together."""

    def __init__(self, settings: Settings) -> None:
        self._seconds = settings.body_timeout
        self._memory = _MemoryBudget(settings.body_memory_bytes)
        self._disk = _DiskBudget(settings.incoming_megabytes)

    @asynccontextmanager
    async def read(
        self, request: Request, path: Path, bound: BodyBound, expected: str
    ) -> AsyncIterator[Body]:
        """Read a body within a bound; one that isn't small goes to the new file `path`.

        Its memory and its file count towards the bounds until the block ends. `expected` says in messages
        what to send. Raises EmptyBody, BodyTooLarge (before reading, if Content-Length says so), BodyTooSlow,
        IncomingFull, NotStored, and ClientDisconnect.
        """
        usage = _Usage(self._memory, self._disk)
        try:
            body = await self._read(request, path, bound, usage)
            if not body.size:
                raise EmptyBody(f"the body is empty; send {expected}")
            yield body
        finally:
            usage.free_memory()
            usage.free_disk()

    async def read_to_file(self, request: Request, path: Path, bound: BodyBound, expected: str) -> int:
        """Read a body to a file even if it is small, and return its size. Raises as `read` does."""
        async with self.read(request, path, bound, expected) as body:
            if body.content is not None:
                try:
                    await asyncio.to_thread(path.write_bytes, body.content)
                except OSError as error:
                    raise not_stored("body", error) from error
            return body.size

    async def _read(self, request: Request, path: Path, bound: BodyBound, usage: _Usage) -> Body:
        bound.check(int(request.headers.get("Content-Length", 0)))
        try:
            with span("http", "body") as reading:
                async with asyncio.timeout(self._seconds):
                    body = await _spool(request, path, bound, usage)
                reading.note(size=body.size)
                return body
        except TimeoutError:
            raise BodyTooSlow(f"the body took longer than {self._seconds:g} seconds") from None
        except OSError as error:
            raise not_stored("body", error) from error


class _MemoryBudget:
    """The memory that all bodies take, in bytes, and its bound."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._used = 0
        self._peak = 0

    @property
    def is_short(self) -> bool:
        """Whether half is used: the other half is for what arrives until the buffers are written."""
        return self._used > self._most // 2

    def add(self, size: int) -> None:
        """Count so many bytes more, or fewer if negative."""
        self._used += size
        self._peak = max(self._peak, self._used)
        if self._peak > _TRIM_BYTES and self._used < self._peak // 4:
            self._peak = self._used
            asyncio.get_running_loop().call_later(_TRIM_SECONDS, trim_heap)


class _DiskBudget:
    """The disk that the files of all bodies take, in bytes, and its bound."""

    def __init__(self, most_megabytes: float) -> None:
        self._most_megabytes = most_megabytes
        self._used = 0

    def add(self, size: int) -> None:
        """Count so many bytes more, or fewer if negative. Raises IncomingFull."""
        if self._used + size > self._most_megabytes * (1 << 20):
            raise IncomingFull(
                f"the bodies that are arriving take {self._most_megabytes:g} MiB of disk, as much as they may"
                " (PGOF_INCOMING_MEGABYTES); send it again later"
            )
        self._used += size


class _Usage:
    """The memory and disk that one body takes."""

    def __init__(self, memory: _MemoryBudget, disk: _DiskBudget) -> None:
        self._memory = memory
        self._disk = disk
        self._in_memory = 0
        self._on_disk = 0

    @property
    def buffer_bytes(self) -> int:
        """How much of the body may be buffered before it is written."""
        return _SMALL_BUFFER_BYTES if self._memory.is_short else _BUFFER_BYTES

    def add_memory(self, size: int) -> None:
        """Count so many bytes more in memory."""
        self._in_memory += size
        self._memory.add(size)

    def free_memory(self) -> None:
        """Count nothing in memory any more."""
        self.add_memory(-self._in_memory)

    def add_disk(self, size: int) -> None:
        """Count so many bytes more on disk. Raises IncomingFull."""
        self._disk.add(size)
        self._on_disk += size

    def free_disk(self) -> None:
        """Count nothing on disk any more."""
        self.add_disk(-self._on_disk)


async def _spool(request: Request, path: Path, bound: BodyBound, usage: _Usage) -> Body:
    """Read a body; write one that outgrows memory to the file as it arrives, a buffer at a time."""
    size, buffer = 0, bytearray()
    async for chunk in request.stream():
        size += len(chunk)
        bound.check(size)
        buffer += chunk
        usage.add_memory(len(chunk))
        if len(buffer) >= usage.buffer_bytes:
            usage.add_disk(len(buffer))
            await _write(path, buffer)
            usage.free_memory()
            buffer = bytearray()
    if size == len(buffer) <= _IN_MEMORY_BYTES:
        return Body(size, bytes(buffer))
    if buffer:
        usage.add_disk(len(buffer))
        await _write(path, buffer)
        usage.free_memory()
    return Body(size, None)


async def _write(path: Path, content: bytearray) -> None:
    """Write at the end of a file, made if it is missing. Raises OSError.

    If the request is cancelled, wait for the write, which could otherwise make the file after its removal.
    """
    writing = asyncio.get_running_loop().run_in_executor(None, _append, path, content)
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        raise


def _append(path: Path, content: bytearray) -> None:
    """Write at the end of a file, made if it is missing. Raises OSError.

    It doesn't stay open until the next write: slow clients could otherwise take all file descriptors.
    """
    with path.open("ab", buffering=0) as file:
        left = memoryview(content)
        while left:
            left = left[file.write(left) :]
