"""Worker processes: the seam between the event loop and the engine, which outlives a worker's death."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable
from ctypes import c_int64
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import ParamSpec, Self, TypeVar, cast
from zlib import crc32

import structlog

from pgo_collector.engine.channel import ChannelLost, outcome
from pgo_collector.engine.process import Process
from pgo_collector.engine.tasks import save_rows
from pgo_collector.errors import WorkerLost

P = ParamSpec("P")
T = TypeVar("T")

# Is told of each task that has ended: its name, and the seconds since it was asked for.
Observer = Callable[[str, float], None]

# A task on which the process died may be what it died of; often it only was there.
_ATTEMPTS = 3
# What is larger, such as a question's answer, is unpickled on a thread.
_SMALL_BYTES = 64 << 10
_log = structlog.get_logger()


def unobserved(task: str, seconds: float) -> None:
    """An observer that doesn't look."""


class Workers:
    """Processes, as an async context manager; together they keep `rows_bytes` of rows in
    memory, and all of them in a folder. Each is started when it first has something to do.
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
        """Calls a function of the engine, with small arguments, in the worker that has least to do; see
        `run_for`.
        """
        worker = min(self._workers, key=lambda worker: worker.waiting)
        return cast("T", await worker.run(function.__name__, _task(function, *args, **kwargs)))

    async def run_for(self, owner: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a function of the engine, maybe with thousands of names, in the worker that has the rows of
        `owner`, if any has them.

        It is called again, twice at most, if the worker is killed meanwhile. Raises what the function raises,
        and WorkerLost.
        """
        worker = self._workers[crc32(owner.encode()) % len(self._workers)]
        task = await asyncio.to_thread(lambda: _task(function, *args, **kwargs))
        return cast("T", await worker.run(function.__name__, task))


class _Worker:
    """A process, and the one that takes its place when it dies."""

    def __init__(self, rows_bytes: int, rows_folder: Path, observe: Observer) -> None:
        self.waiting = 0
        self.rows_taken = RawValue(c_int64)
        self._observe = observe
        # A task that waits here isn't struck when the process dies.
        self._turn = asyncio.Lock()
        self._rows = rows_bytes, rows_folder, self.rows_taken
        self._process: Process | None = None

    async def run(self, name: str, task: bytes) -> object:
        self.waiting += 1
        begin = time.perf_counter()
        try:
            async with self._turn:
                answer = await self._ask(name, task)
        finally:
            self.waiting -= 1
            self._observe(name, time.perf_counter() - begin)
        if len(answer) > _SMALL_BYTES:
            return await asyncio.to_thread(outcome, answer)
        return outcome(answer)

    async def answer(self) -> None:
        if self._process is not None and not self.waiting:
            async with self._turn:
                await self._ask(start.__name__, _task(start))

    async def save_rows(self) -> None:
        if self._process is not None:
            await self.run(save_rows.__name__, _task(save_rows))

    async def stop(self) -> None:
        if self._process is not None:
            await self._process.ended()

    async def _ask(self, name: str, task: bytes) -> bytes:
        for _ in range(_ATTEMPTS):
            if self._process is None:
                self.rows_taken.value = 0
                self._process = await Process.started(*self._rows)
            try:
                return await self._process.channel.ask(task)
            except ChannelLost:
                _log.error("a worker process died, starting a new one", task=name)
                lost, self._process = self._process, None
                await lost.ended()
        raise WorkerLost(f"the worker process died under this request, {_ATTEMPTS} times")


def _task(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> bytes:
    """A call, as it travels."""
    return pickle.dumps((function, args, kwargs))


def start() -> None:
    """The first task: for it the fork server starts, which takes longest. Later it shows that one answers."""
