"""Scraped profiles on their way: checked, kept on disk, and sent from there."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from itertools import cycle
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Self

from pgo_agent.collector import Collector
from pgo_agent.endpoint import Query
from pgo_agent.scrape.lane import Lane
from pgo_agent.spool import Dropped

# A disk that syncs one file after another is slower than a fleet; a kernel syncs several files at a time.
_LANES = 4
_SMALL = 1 << 17


class Dispatch:
    """Takes profiles for a collector. As a context manager it ends with the block, as `close` does.

    They wait in `folder`, at most `max_bytes` of them. Raises OSError if it isn't there and can't be made.
    """

    def __init__(self, collector: Collector, folder: str | os.PathLike[str], *, max_bytes: int) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._until = threading.Event()
        self._lanes = [
            Lane(collector, self._folder / str(number), max_bytes=max_bytes // _LANES, until=self._until)
            for number in range(_LANES)
        ]
        self._next = cycle(self._lanes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close(0)

    def room(self) -> IO[bytes]:
        """Where a profile is put while it comes: in memory while it is small, and gone when it is closed.

        So hundreds of targets that answer with gigabytes take no memory.
        """
        return SpooledTemporaryFile(_SMALL, dir=str(self._folder))

    async def take(self, body: IO[bytes], query: Query, limit: int) -> None:
        """Keeps a profile that was scraped, to be sent with that query; returns when it is on disk.

        Raises ScrapeFailed if it isn't a pprof profile of at most `limit` bytes, inflated.
        """
        await asyncio.wrap_future(next(self._next).take(body, query, limit))

    def close(self, patience: float) -> None:
        """Sends what is there, for `patience` seconds at most; what is left stays in the folder."""
        for lane in self._lanes:
            lane.close()
        latest = time.monotonic() + patience
        while any(lane.thread.is_alive() for lane in self._lanes) and time.monotonic() < latest:
            if self._until.wait(0.05):
                break
        self._until.set()
        for lane in self._lanes:
            lane.shut()

    def hurry(self) -> None:
        """Ends a `close` that is under way, and everything's wait to be tried again."""
        self._until.set()

    @property
    def sent(self) -> int:
        """How many profiles the collector has taken."""
        return sum(lane.sent for lane in self._lanes)

    @property
    def waiting(self) -> int:
        """How many are on disk, with those of others who share the folder."""
        return sum(lane.waiting for lane in self._lanes)

    @property
    def dropped(self) -> Counter[Dropped]:
        """How many never will be sent, by reason."""
        return sum((lane.dropped for lane in self._lanes), Counter())
