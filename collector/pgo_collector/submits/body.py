"""Request bodies: read into memory if small, else into a file, with bounds on size, time, memory and disk.

Routes that take a body call `BodyReader` before they do anything else with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request

from pgo_collector.blobs.files import delete_part, new_part
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


# What sets the size of the largest profile, in messages.
LARGEST_BODY = "PGOF_MAX_INFLATED_BYTES or, if it is gzip, PGOF_MAX_COMPRESSED_BYTES"


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
    """A body that was read: its size in bytes, and its bytes, or the file that they are in."""

    size: int
    content: bytes | Path

    @property
    def part(self) -> Path:
        """The file of a body that was read `to_file`."""
        assert isinstance(self.content, Path)  # noqa: S101 - see `BodyReader.read`
        return self.content


class BodyReader:
    """Reads request bodies, within bounds on the memory and the disk that all of them take together."""

    def __init__(self, settings: Settings, incoming: Path) -> None:
        """Take the settings, and the folder for bodies that outgrow memory."""
        self._seconds = settings.body_timeout
        self._incoming = incoming
        self._usage = _Usage(settings.body_memory_bytes, settings.incoming_megabytes)

    @asynccontextmanager
    async def read(
        self, request: Request, bound: BodyBound, expected: str, *, to_file: bool = False
    ) -> AsyncIterator[Body]:
        """Read a body within a bound; one that isn't small goes to a file, any one if `to_file`.

        Its memory and its file count towards the bounds until the block ends, which deletes the file and
        those that a worker has made beside it. `expected` says in messages what to send. Raises EmptyBody,
        BodyTooLarge (before reading, if Content-Length says so), BodyTooSlow, IncomingFull, NotStored, and
        ClientDisconnect.
        """
        arriving = _Arriving(self._usage, self._incoming, self._seconds)
        try:
            body = await arriving.receive(request, bound, to_file=to_file)
            if not body.size:
                raise EmptyBody(f"the body is empty; send {expected}")
            yield body
        finally:
            if arriving.part is not None:
                await asyncio.to_thread(_remove, arriving.part)
            self._usage.count(-arriving.memory, -arriving.disk)


class _Usage:
    """The memory and the disk that all bodies take, in bytes, and their bounds."""

    def __init__(self, most_memory: int, most_megabytes: float) -> None:
        self._most_memory = most_memory
        self._most_megabytes = most_megabytes
        self._memory = self._disk = 0

    def count(self, memory: int, disk: int) -> int:
        """Count these bytes more, or fewer if negative. Raises IncomingFull.

        Returns how much of a body may be buffered now before it is written. Half of the memory is for what
        arrives until the buffers are written.
        """
        if disk > 0 and self._disk + disk > self._most_megabytes * (1 << 20):
            raise IncomingFull(
                f"uploads in progress use {self._most_megabytes:g} MiB of disk, the limit"
                " (PGOF_BINARY_BYTES or PGOF_INCOMING_MEGABYTES); send it again later"
            )
        self._memory += memory
        self._disk += disk
        return _SMALL_BUFFER_BYTES if self._memory > self._most_memory // 2 else _BUFFER_BYTES


@dataclass(slots=True)
class _Arriving:
    """A body that arrives, and what it takes of the memory and the disk."""

    _usage: _Usage
    _incoming: Path
    _seconds: float
    _buffer: bytearray = field(default_factory=bytearray)
    part: Path | None = None
    memory: int = 0
    disk: int = 0

    async def receive(self, request: Request, bound: BodyBound, *, to_file: bool) -> Body:
        """Read the body; write one that outgrows memory to the file as it arrives, a buffer at a time."""
        size = 0
        bound.check(int(request.headers.get("Content-Length", 0)))
        try:
            with span("http", "body") as reading:
                async with asyncio.timeout(self._seconds):
                    async for chunk in request.stream():
                        size += len(chunk)
                        bound.check(size)
                        self._buffer += chunk
                        buffer_bytes = self._usage.count(len(chunk), 0)
                        self.memory += len(chunk)
                        if self.memory >= buffer_bytes:
                            await self._write()
                    is_small = size == self.memory <= _IN_MEMORY_BYTES
                    if self._buffer and (to_file or not is_small):
                        await self._write()
                reading.note(size=size)
        except TimeoutError:
            raise BodyTooSlow(f"the body took longer than {self._seconds:g} seconds") from None
        except OSError as error:
            raise not_stored("body", error) from error
        return Body(size, self.part or bytes(self._buffer))

    async def _write(self) -> None:
        """Write what is buffered at the end of the file. Raises IncomingFull and OSError."""
        self._usage.count(0, self.memory)
        self.disk += self.memory
        self.part = self.part or new_part(self._incoming)
        await _write(self.part, self._buffer)
        self._usage.count(-self.memory, 0)
        self.memory, self._buffer = 0, bytearray()


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


def _remove(part: Path) -> None:
    """Delete the file of a body, and those that a worker has made of it."""
    found = [part]
    with suppress(OSError):
        found += part.parent.glob(f"{part.stem}.*")
    for path in dict.fromkeys(found):
        delete_part(path)
