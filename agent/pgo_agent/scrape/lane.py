"""A folder of the spool, with one thread that writes to it and one that sends what is in there."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

from pgo_agent.collector import Collector
from pgo_agent.endpoint import Query, upload_of
from pgo_agent.outbox import Outbox
from pgo_agent.scrape.fetch import check_pprof
from pgo_agent.spool import DiskSpool, Dropped

_AGAIN = 5.0  # after how many seconds without an answer, or without a new profile, to try what waits


class Lane:
    """Works from the start, until it has sent all after `close`, or as soon as `until` is set.

    Each thread has an outbox and a spool of its own on the folder, as two processes have: what they count is
    added up here.
    """

    def __init__(self, collector: Collector, folder: Path, *, max_bytes: int, until: threading.Event) -> None:
        self._writer, self._sender = (
            Outbox(collector, DiskSpool(folder, max_bytes=max_bytes)) for _ in range(2)
        )
        self._spool = DiskSpool(folder)
        self._until = until
        self._news = threading.Condition()
        self._taken, self._closing = 0, False
        self._writing = ThreadPoolExecutor(1, "pgo-agent-spool")
        # Not waited for by the interpreter: an answer may take longer than a signal lets it live.
        self.thread = threading.Thread(target=self._send_all, name="pgo-agent-send", daemon=True)
        self.thread.start()

    def take(self, body: IO[bytes], query: Query, limit: int) -> Future[None]:
        """Checks and keeps a profile; done when it is on disk. See Dispatch."""
        return self._writing.submit(self._take, body, query, limit)

    def close(self) -> None:
        """What is there is sent once more, and then no more."""
        with self._news:
            self._closing = True
            self._news.notify()

    def shut(self) -> None:
        """Returns when nothing is being written any more."""
        self._writing.shutdown()

    @property
    def sent(self) -> int:
        """How many profiles the collector has taken."""
        return self._writer.sent + self._sender.sent

    @property
    def waiting(self) -> int:
        """How many are in the folder, with those of others who share it."""
        return self._spool.waiting()

    @property
    def dropped(self) -> Counter[Dropped]:
        """How many never will be sent, by reason."""
        return self._writer.spool.dropped + self._sender.spool.dropped

    def _take(self, body: IO[bytes], query: Query, limit: int) -> None:
        body.seek(0)
        profile = body.read()
        check_pprof(profile, limit)
        self._writer.post(upload_of(profile, query), self._until)
        with self._news:
            self._taken += 1
            self._news.notify()

    def _send_all(self) -> None:
        seen = 0
        while True:
            with self._news:
                self._news.wait_for(lambda: self._closing or self._taken > seen, _AGAIN)  # noqa: B023 - at once
                last, seen = self._closing, self._taken
            answered = self._sender.flush(self._until)
            if last:
                return
            if not answered:
                with self._news:
                    self._news.wait_for(lambda: self._closing, _AGAIN)
