"""Servers of the debuginfod protocol, and a client that takes a file of a build within bounds.

The protocol is elfutils': see debuginfod(8). Only the build id tells the servers anything; what they send is
checked by who asks.
"""

from __future__ import annotations

import asyncio
import errno
import random
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pgo_collector.errors import DebugFileTooLarge, DebuginfodFails
from pgo_collector.hooks.endpoint import pause_seconds, retry_after_seconds
from pgo_collector.model.debuginfod_servers import DebuginfodServer
from pgo_collector.on_first_use import OnFirstUse
from pgo_collector.traces.spans import span

if TYPE_CHECKING:
    import httpx
else:
    httpx = OnFirstUse("httpx")

# Which file of a build: its debug information, which may be separate, or the program itself.
Kind = Literal["debuginfo", "executable"]

# How long a download may take, and how long a server may send nothing: it may have to unpack an archive.
_MOST_SECONDS = 600.0
_SILENT_SECONDS = 90.0
_CONNECT_SECONDS = 10.0
_MOST_REDIRECTS = 4
_CHUNK_BYTES = 1 << 20


class Server:
    """One server, and how long it isn't to be asked after it has failed."""

    def __init__(self, at: DebuginfodServer) -> None:
        self.at = at
        self._failures = 0
        self._rests_until = 0.0  # by the monotonic clock

    @property
    def rests(self) -> bool:
        """Whether the server failed recently, and isn't to be asked yet."""
        return time.monotonic() < self._rests_until

    def answered(self) -> None:
        """Note that it works."""
        self._failures = 0

    def failed(self, asked_seconds: float = 0.0) -> None:
        """Have it rest: for longer with each failure, and for as long as it asks for."""
        self._failures += 1
        own = pause_seconds(self._failures, random.random())  # noqa: S311 - spreads load
        self._rests_until = time.monotonic() + max(own, asked_seconds)


class Servers:
    """The servers, in the order in which they are asked, and a client for them, as an async context manager.

    A file has at most `most_bytes`, and leaves at least `free_bytes` free on the disk.
    """

    def __init__(self, servers: Sequence[DebuginfodServer], most_bytes: int, free_bytes: int) -> None:
        self.all = [*map(Server, servers)]
        self._most_bytes = most_bytes
        self._free_bytes = free_bytes

    async def __aenter__(self) -> Self:
        self._client = httpx.AsyncClient(
            verify=await asyncio.to_thread(httpx.create_ssl_context),  # certificates take long to load
            timeout=httpx.Timeout(_SILENT_SECONDS, connect=_CONNECT_SECONDS),
            headers={"User-Agent": "pgo-collector", "Accept-Encoding": "identity"},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def download(self, server: Server, build_id: str, kind: Kind, part: Path) -> bool:
        """Write a server's file of a build to a new file; return False if the server doesn't have it.

        Raises DebuginfodFails, after which the server rests, DebugFileTooLarge and OSError.
        """
        self._client.cookies.clear()  # a server could have it collect them
        try:
            with span("upkeep", "debuginfod", kind=kind):
                async with asyncio.timeout(_MOST_SECONDS):
                    found = await self._download(f"{server.at.url}/buildid/{build_id}/{kind}", part)
        except TimeoutError:
            server.failed()
            raise DebuginfodFails(f"no file within {_MOST_SECONDS:g} seconds") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            server.failed()
            # The error's text may have a URL in it, and that a password.
            raise DebuginfodFails(type(error).__name__) from error
        except DebuginfodFails as error:
            server.failed(error.asked_seconds)
            raise
        server.answered()
        return found

    async def _download(self, url: str, part: Path) -> bool:
        request = self._client.build_request("GET", url)
        for _ in range(_MOST_REDIRECTS + 1):
            answer = await self._client.send(request, stream=True)
            try:
                if answer.next_request is None:
                    return await self._take(answer, part)
                request = _followed(answer.request, answer.next_request)
            finally:
                await answer.aclose()
        raise DebuginfodFails(f"more than {_MOST_REDIRECTS} redirects")

    async def _take(self, answer: httpx.Response, part: Path) -> bool:
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return False
        if answer.status_code != HTTPStatus.OK:
            asked = retry_after_seconds(answer.headers.get("Retry-After"), datetime.now(UTC))
            raise DebuginfodFails(f"status {answer.status_code}", asked)
        free = (await asyncio.to_thread(shutil.disk_usage, part.parent)).free - self._free_bytes
        size = 0
        with suppress(ValueError):
            self._check_size(int(answer.headers.get("Content-Length", "0")), free)
        # It stays open, so that a write that is cancelled can't make the file again after its removal.
        with await asyncio.to_thread(part.open, "xb") as file:
            async for chunk in answer.aiter_raw(_CHUNK_BYTES):
                size += len(chunk)
                self._check_size(size, free)
                await asyncio.to_thread(file.write, chunk)
        if not size:
            raise DebuginfodFails("an empty file")
        return True

    def _check_size(self, size: int, free: int) -> None:
        if size > self._most_bytes:
            raise DebugFileTooLarge(f"the file is larger than {self._most_bytes:,} bytes (PGOF_BINARY_BYTES)")
        if size > free:
            raise OSError(errno.ENOSPC, "no room for the file (PGOF_MIN_FREE_MEGABYTES)")


def _followed(before: httpx.Request, after: httpx.Request) -> httpx.Request:
    """Return the request that a redirect leads to, unless it leaves HTTP or encryption behind."""
    schemes = before.url.scheme, after.url.scheme
    if schemes[1] not in {"http", "https"} or schemes == ("https", "http"):
        raise DebuginfodFails(f"a redirect from {schemes[0]} to {schemes[1] or 'no scheme'}")
    return after
