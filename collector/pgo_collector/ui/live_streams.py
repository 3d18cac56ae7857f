"""Live streams: server-sent events that tell a page of a service when there is a newer profile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from time import monotonic

from pgo_collector.catalog.summaries import Summaries
from pgo_collector.errors import KeyOutOfScope, KeyRefused, TooManyStreams
from pgo_collector.model.selection import Selection

# The pause between two looks into the catalog.
_PAUSE_SECONDS = 2.0
# So long after the last event a comment is sent, which shows proxies and the server that both ends are there.
_QUIET_SECONDS = 15.0
# A stream ends after so long, and the browser opens another one.
_LONGEST_SECONDS = 600.0


class LiveStreams:
    """The streams, `most` at a time. A stop of the server ends them."""

    def __init__(self, summaries: Summaries, most: int, stopping: asyncio.Event) -> None:
        self._summaries = summaries
        self._most = most
        self._stopping = stopping
        self._open = 0

    async def events(
        self, selection: Selection, check: Callable[[], Awaitable[None]]
    ) -> AsyncGenerator[bytes]:
        """Yield the time of the newest profile of a selection, in ns since 1970, at once and when it changes.

        It is 0 without any profile. Ends when `check`, which is called before each look, raises KeyRefused or
        KeyOutOfScope. Raises TooManyStreams, before the first event, if there is no room.
        """
        if self._open >= self._most:
            raise TooManyStreams(
                f"{self._most:,} pages are told of new profiles (PGOF_MAX_CONNECTIONS or PGOF_LIVE_STREAMS);"
                " reload this one by hand"
            )
        self._open += 1
        try:
            yield b"retry: 5000\n\n"
            told, last, end = -1, monotonic(), monotonic() + _LONGEST_SECONDS
            while monotonic() < end and not self._stopping.is_set():
                await check()
                newest = await asyncio.to_thread(self._summaries.newest, selection) or 0
                if newest != told:
                    told, last = newest, monotonic()
                    yield f"event: profile\ndata: {newest}\n\n".encode()
                elif monotonic() > last + _QUIET_SECONDS:
                    last = monotonic()
                    yield b": nothing new\n\n"
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), _PAUSE_SECONDS)
        except (KeyRefused, KeyOutOfScope):
            return
        finally:
            self._open -= 1
