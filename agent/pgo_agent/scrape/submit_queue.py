"""Check scraped profiles, keep them on disk, and send them to the collector from there.

A `SubmitQueue` spreads profiles over four spool folders. Each folder has a `_SpoolWorker` with two threads:
one checks and writes, the other sends.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import zlib
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Self

from pprof_proto.other_formats import other_format

from pgo_agent.collector import Collector
from pgo_agent.endpoint import GZIP_MAGIC, Query, make_upload
from pgo_agent.errors import ScrapeFailed
from pgo_agent.outbox import Outbox
from pgo_agent.spool import DiskSpool, Dropped, make_folder
from pgo_agent.trace import Step

# Syncing one file after another is too slow for a fleet; the kernel syncs several files at a time.
_FOLDERS = 4
_IN_MEMORY_BYTES = 1 << 17
_RETRY_SECONDS = 5.0  # how long a worker waits in an outage, or without new profiles, before it sends again
_NO_PROFILE = "not a pprof profile"
_GZIP = zlib.MAX_WBITS | 16


class SubmitQueue:
    """Profiles on their way to a collector: at most `max_bytes` bytes of them, kept in `folder`.

    As a context manager it closes at the end of the block. Raises OSError if `folder` can't be created.
    """

    def __init__(self, collector: Collector, folder: str | os.PathLike[str], *, max_bytes: int) -> None:
        self._folder = make_folder(Path(folder))
        self._until = threading.Event()
        self._workers = [
            _SpoolWorker(
                collector, self._folder / str(number), max_bytes=max_bytes // _FOLDERS, until=self._until
            )
            for number in range(_FOLDERS)
        ]
        self._next = cycle(self._workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close(0)

    def buffer(self) -> IO[bytes]:
        """Return a temporary file to download a profile into: in memory while small, deleted when closed.

        With it, hundreds of targets that answer with gigabytes take no memory.
        """
        return SpooledTemporaryFile(_IN_MEMORY_BYTES, dir=str(self._folder))

    async def put(self, body: IO[bytes], query: Query, limit: int, scraped: Step) -> None:
        """Check a profile and keep it, to be sent with these query parameters; return once it is on disk.

        `scraped` is the step in which it was taken, for traces. Raises ScrapeFailed if it isn't a pprof
        profile of at most `limit` bytes, inflated.
        """
        await asyncio.wrap_future(next(self._next).put(body, query, limit, scraped))

    def close(self, timeout: float) -> None:
        """Send what is in the folder, for at most `timeout` seconds; the rest stays there."""
        for worker in self._workers:
            worker.close()
        deadline = time.monotonic() + timeout
        while any(worker.thread.is_alive() for worker in self._workers) and time.monotonic() < deadline:
            if self._until.wait(0.05):
                break
        self._until.set()
        for worker in self._workers:
            worker.finish_writing()

    def abort(self) -> None:
        """End a `close` that is running, and every wait for another attempt."""
        self._until.set()

    @property
    def sent(self) -> int:
        """Return how many profiles the collector has accepted."""
        return sum(worker.sent for worker in self._workers)

    @property
    def waiting(self) -> int:
        """Return how many profiles are on disk, including those of other agents that share the folder."""
        return sum(worker.waiting for worker in self._workers)

    @property
    def key_refused(self) -> int:
        """Return how often the collector has refused the key."""
        return sum(worker.key_refused for worker in self._workers)

    @property
    def dropped(self) -> Counter[Dropped]:
        """Return how many profiles were dropped, by reason."""
        return sum((worker.dropped for worker in self._workers), Counter())


class _SpoolWorker:
    """One spool folder, with a thread that writes to it and a thread that sends from it.

    It sends until `close` has been called and all profiles are sent, or until `until` is set. Each thread has
    an outbox and a spool of its own on the folder, as two processes would; their counts are added up here.
    """

    def __init__(self, collector: Collector, folder: Path, *, max_bytes: int, until: threading.Event) -> None:
        self._writer, self._sender = (
            Outbox(collector, DiskSpool(folder, max_bytes=max_bytes)) for _ in range(2)
        )
        self._spool = DiskSpool(folder)
        self._until = until
        self._changed = threading.Condition()
        self._written, self._closing = 0, False
        self._writing = ThreadPoolExecutor(1, "pgo-agent-spool")
        # A daemon, so that the interpreter doesn't wait: an answer may take longer than a signal allows.
        self.thread = threading.Thread(target=self._send_all, name="pgo-agent-send", daemon=True)
        self.thread.start()

    def put(self, body: IO[bytes], query: Query, limit: int, scraped: Step) -> Future[None]:
        """Check and keep a profile, as `SubmitQueue.put`; the future is done when it is on disk."""
        return self._writing.submit(self._put, body, query, limit, scraped)

    def close(self) -> None:
        """Send what is in the folder once more, then end the sending thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def finish_writing(self) -> None:
        """Return when no profile is being written any more."""
        self._writing.shutdown()

    @property
    def sent(self) -> int:
        """Return how many profiles the collector has accepted."""
        return self._writer.sent + self._sender.sent

    @property
    def waiting(self) -> int:
        """Return how many profiles are in the folder, including those of other agents that share it."""
        return self._spool.waiting()

    @property
    def key_refused(self) -> int:
        """Return how often the collector has refused the key."""
        return self._writer.key_refused + self._sender.key_refused

    @property
    def dropped(self) -> Counter[Dropped]:
        """Return how many profiles were dropped, by reason."""
        return self._writer.spool.dropped + self._sender.spool.dropped

    def _put(self, body: IO[bytes], query: Query, limit: int, scraped: Step) -> None:
        body.seek(0)
        profile = body.read()
        check_pprof(profile, limit)
        self._writer.post(make_upload(profile, query), self._until, (scraped,))
        with self._changed:
            self._written += 1
            self._changed.notify()

    def _send_all(self) -> None:
        seen = 0
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closing or self._written > seen,  # noqa: B023 - called before seen changes
                    _RETRY_SECONDS,
                )
                last, seen = self._closing, self._written
            answered = self._sender.flush(self._until)
            if last:
                return
            if not answered:
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, _RETRY_SECONDS)


def check_pprof(body: bytes, limit: int) -> None:
    """Check that a body, gzipped or bare, is a pprof profile of at most `limit` bytes when inflated.

    Raises ScrapeFailed.
    """
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - as in CpuProfileBuilder
    from pprof_proto.profile_pb2 import Profile as Message  # noqa: PLC0415

    protobuf = body
    for _ in range(2):  # some senders compress what is compressed
        if protobuf.startswith(GZIP_MAGIC):
            protobuf = _inflate(protobuf, limit)
    fault = ""
    try:
        message = Message.FromString(protobuf)
    except DecodeError:
        fault = "the message is cut off, or is none of protobuf"
    else:
        if not message.sample_type or not message.string_table or message.string_table[0]:
            fault = "it has no sample types, or no strings" if protobuf else "the answer is empty"
    if fault:
        known = other_format(protobuf)
        raise ScrapeFailed(_NO_PROFILE, f"this is {known}" if known else fault)


def _inflate(body: bytes, limit: int) -> bytes:
    inflating = zlib.decompressobj(_GZIP)
    try:
        inflated = inflating.decompress(body, limit + 1)
    except zlib.error as error:
        raise ScrapeFailed(_NO_PROFILE, f"gzip: not valid gzip ({error})") from error
    if len(inflated) > limit:
        raise ScrapeFailed("too large", f"more than {limit} bytes when inflated")
    if not inflating.eof:
        raise ScrapeFailed(_NO_PROFILE, "gzip: the stream is truncated")
    if inflating.unused_data:
        raise ScrapeFailed(_NO_PROFILE, "gzip: other bytes follow the stream")
    return inflated
