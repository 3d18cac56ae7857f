"""Worker processes: the seam between the event loop and the engine, which outlives a worker's death."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from ctypes import c_int64
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import ParamSpec, Self, TypeVar
from zlib import crc32

import structlog
from pprof_merge.heap import keep_heap

from pgo_collector.engine.tasks import SHELF, save_rows
from pgo_collector.errors import WorkerLost

P = ParamSpec("P")
T = TypeVar("T")

# Is told of each task that has ended: its name, and the seconds since it was asked for.
Observer = Callable[[str, float], None]

# A task on which the process died may be what it died of; often it only was there.
_ATTEMPTS = 3
_log = structlog.get_logger()


def unobserved(task: str, seconds: float) -> None:
    """An observer that doesn't look."""


class Workers:
    """Processes, as an async context manager; together they keep `rows_bytes` of rows in
    memory, and all of them in a folder.

    They come from a fork server that has the engine loaded and, unlike this process, no threads: a new
    one is there in milliseconds.
    """

    def __init__(
        self, count: int, rows_bytes: int, rows_folder: Path, observe: Observer = unobserved
    ) -> None:
        self._workers = [_Worker(rows_bytes // count, rows_folder, observe) for _ in range(count)]

    async def __aenter__(self) -> Self:
        await self.run(start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.save_rows()
        await asyncio.gather(*(worker.stop() for worker in self._workers))

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._workers)

    @property
    def busy(self) -> int:
        """How many of them have something to do."""
        return sum(worker.waiting > 0 for worker in self._workers)

    @property
    def queued(self) -> int:
        """How many tasks wait for another one to end."""
        return sum(max(worker.waiting - 1, 0) for worker in self._workers)

    @property
    def rows_bytes(self) -> int:
        """How much memory the rows of all take, as of the last task of each."""
        return sum(worker.rows_taken.value for worker in self._workers)

    async def answer(self) -> None:
        """Returns when each that has nothing to do has answered; one that is dead is replaced before.

        Raises WorkerLost, and OSError or EOFError if no process can be started.
        """
        await asyncio.gather(*(worker.answer() for worker in self._workers))

    async def save_rows(self) -> None:
        """Has every worker put its rows on disk."""
        for worker in self._workers:
            try:
                await worker.save_rows()
            except (OSError, WorkerLost) as error:
                _log.warning("rows not saved, the blobs are read again when needed", reason=str(error))

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a function of the engine in the worker that has least to do; see `run_for`."""
        worker = min(self._workers, key=lambda worker: worker.waiting)
        return await worker.run(function, *args, **kwargs)

    async def run_for(self, owner: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a function of the engine in the worker that has the rows of `owner`, if any has them.

        It is called again, twice at most, if the worker is killed meanwhile. Raises what the function raises,
        and WorkerLost.
        """
        return await self._workers[crc32(owner.encode()) % len(self._workers)].run(function, *args, **kwargs)


class _Worker:
    """A process, and the one that takes its place when it dies."""

    def __init__(self, rows_bytes: int, rows_folder: Path, observe: Observer) -> None:
        self.waiting = 0
        self.rows_taken = RawValue(c_int64)
        self._observe = observe
        self._has_run = False
        # A task that waits here isn't struck when the process dies, as one that waits in the pool is.
        self._turn = asyncio.Lock()
        self._rows = rows_bytes, rows_folder, self.rows_taken
        self._pool = self._new_pool()

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.waiting += 1
        self._has_run = True
        begin = time.perf_counter()
        try:
            async with self._turn:
                return await self._run(function, *args, **kwargs)
        finally:
            self.waiting -= 1
            self._observe(function.__name__, time.perf_counter() - begin)

    async def answer(self) -> None:
        if self._has_run and not self.waiting:
            async with self._turn:
                await self._run(start)

    async def save_rows(self) -> None:
        if self._has_run:
            await self.run(save_rows)

    async def stop(self) -> None:
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(_ATTEMPTS):
            pool = self._pool
            try:
                future = await asyncio.to_thread(pool.submit, function, *args, **kwargs)
                return await asyncio.wrap_future(future)
            except BrokenProcessPool:
                if pool is self._pool:
                    _log.error("a worker process died, starting a new one", task=function.__name__)
                    self._pool = self._new_pool()
                    await asyncio.to_thread(pool.shutdown, wait=False)
        raise WorkerLost(f"the worker process died under this request, {_ATTEMPTS} times")

    def _new_pool(self) -> ProcessPoolExecutor:
        # Workers are the threads here; the libraries' own would only compete with them.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["pgo_collector.engine.tasks"])
        self.rows_taken.value = 0
        return ProcessPoolExecutor(1, context, _set_up, self._rows)


def _set_up(rows_bytes: int, rows_folder: Path, rows_taken: c_int64) -> None:
    """In each worker: Ctrl-C is the server's to handle, and a server that is gone is the worker's end."""
    keep_heap()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A file of rows that is mapped stays open, and there may be thousands.
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    SHELF.most_bytes, SHELF.folder, SHELF.taken = rows_bytes, rows_folder, rows_taken
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def start() -> None:
    """The first task: for it the fork server starts, which takes longest. Later it shows that one answers."""
