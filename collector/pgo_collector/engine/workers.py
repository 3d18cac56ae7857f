"""Worker processes: the seam between the event loop and the engine, which outlives a worker's death."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import ParamSpec, Self, TypeVar

import structlog

from pgo_collector.errors import WorkerLost

P = ParamSpec("P")
T = TypeVar("T")

_ATTEMPTS = 2
_log = structlog.get_logger()


class Workers:
    """A pool of processes, as an async context manager.

    The processes come from a fork server that has the engine loaded and, unlike this process, no
    threads: a new one is there in milliseconds.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool = self._new_pool()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._pool.submit, _nothing)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a function of the engine in a worker; again, once, if the worker is killed meanwhile.

        Raises what the function raises, and WorkerLost.
        """
        for _ in range(_ATTEMPTS):
            pool = self._pool
            try:
                future = await asyncio.to_thread(pool.submit, function, *args, **kwargs)
                return await asyncio.wrap_future(future)
            except BrokenProcessPool:
                if pool is self._pool:
                    _log.error("a worker process died, starting new ones", task=function.__name__)
                    self._pool = self._new_pool()
                    await asyncio.to_thread(pool.shutdown, wait=False)
        raise WorkerLost("the worker processes died under this request, twice")

    def _new_pool(self) -> ProcessPoolExecutor:
        # Workers are the threads here; the libraries' own would only compete with them.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["pgo_collector.engine.tasks"])
        return ProcessPoolExecutor(self._count, context, _set_up)


def _set_up() -> None:
    """In each worker: Ctrl-C is the server's to handle, and a server that is gone is the worker's end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _nothing() -> None:
    """The first task: for it the fork server starts, which takes longest."""
