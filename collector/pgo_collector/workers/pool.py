"""Worker processes: the seam between the event loop and the engine, which outlives a worker's death.

Whatever a task does, whoever asked for it gets an answer: a worker that died, hangs, takes too long or too
much memory is replaced, and a task is tried again only where it may not have been the cause.
"""

from __future__ import annotations

import asyncio
import pickle
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from ctypes import c_int64
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import Literal, ParamSpec, Self, TypeVar, cast, get_args
from zlib import crc32

import structlog

from pgo_collector.engine.tasks import save_rows
from pgo_collector.errors import (
    TaskOutOfMemory,
    TaskTooSlow,
    WorkerLost,
    WorkersBusy,
    WorkerUnavailable,
)
from pgo_collector.resources import oom_kills
from pgo_collector.workers.channel import ChannelLost, outcome
from pgo_collector.workers.process import LOOK_SECONDS, Bounds, Process

P = ParamSpec("P")
T = TypeVar("T")

# Is told of each task that has ended: its name, and the seconds since it was asked for.
Observer = Callable[[str, float], None]

# Why a worker process was replaced by another.
Replacement = Literal["died", "hung", "too_slow", "out_of_memory", "abandoned"]

# A task on which the process died may be what it died of; often it only was there.
_ATTEMPTS = 3
# How long a task goes on for which nobody waits any more: most are done by then, and a new process has to
# read its rows.
_ABANDONED_SECONDS = 2.0
# Exit codes after a SIGTERM, which is often for all processes of the server. Where the fork server has ended
# before the process, nobody knows its code.
_TERMINATED = {-signal.SIGTERM, 255}
# What is larger, such as a question's answer, is unpickled on a thread.
_SMALL_BYTES = 64 << 10
_log = structlog.get_logger()


def unobserved(task: str, seconds: float) -> None:
    """Observe nothing."""


class Workers:
    """Processes, as an async context manager. Each keeps rows in memory within its bounds, and all of them in
    a folder. A process is started when it first has something to do.
    """

    def __init__(self, count: int, bounds: Bounds, rows_folder: Path, observe: Observer = unobserved) -> None:
        self.replaced: Counter[Replacement] = Counter(dict.fromkeys(get_args(Replacement), 0))
        self._workers = [_Worker(bounds, rows_folder, observe, self.replaced) for _ in range(count)]

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
    def oldest_task_seconds(self) -> float:
        """How long ago the oldest task was asked for that has no answer yet; 0 if there is none."""
        return max((worker.oldest_task_seconds for worker in self._workers), default=0.0)

    @property
    def rows_bytes(self) -> int:
        """How much memory the rows of all take, as of the last task of each."""
        return sum(worker.rows_taken.value for worker in self._workers)

    async def answer(self) -> None:
        """Return when each that has nothing to do has answered; one that is dead or hangs is replaced before.

        Raises WorkerUnavailable, and OSError or EOFError if no process can be started.
        """
        await asyncio.gather(*(worker.answer() for worker in self._workers))

    async def save_rows(self) -> None:
        """Have every worker put its rows on disk."""
        for worker in self._workers:
            try:
                await worker.save_rows()
            except (OSError, WorkerUnavailable, TaskOutOfMemory) as error:
                _log.warning("rows not saved, the blobs are read again when needed", reason=str(error))

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function of the engine, with small arguments, in the worker that has least to do; see
        `run_for`.
        """
        worker = min(self._workers, key=lambda worker: worker.waiting)
        return cast("T", await worker.run(function.__name__, _task(function, *args, **kwargs)))

    async def run_for(self, owner: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function of the engine, maybe with thousands of names, in the worker that has the rows of
        `owner`, if any has them.

        It is called up to three times if its worker dies or hangs. If this is cancelled, the call is ended
        soon after. Raises what the function raises, TaskOutOfMemory and WorkerUnavailable.
        """
        worker = self._workers[crc32(owner.encode()) % len(self._workers)]
        task = await asyncio.to_thread(lambda: _task(function, *args, **kwargs))
        return cast("T", await worker.run(function.__name__, task))


class _Worker:
    """A process, and the one that takes its place when it dies."""

    def __init__(
        self, bounds: Bounds, rows_folder: Path, observe: Observer, replaced: Counter[Replacement]
    ) -> None:
        self.rows_taken = RawValue(c_int64)
        self._bounds = bounds
        self._rows_folder = rows_folder
        self._observe = observe
        self._replaced = replaced
        # When each task was asked for that has no answer yet, in seconds; the oldest comes first.
        self._asked: dict[object, float] = {}
        # A task that waits here isn't struck when the process dies.
        self._turn = asyncio.Lock()
        self._process: Process | None = None
        self._oom_kills = 0

    @property
    def waiting(self) -> int:
        return len(self._asked)

    @property
    def oldest_task_seconds(self) -> float:
        return time.monotonic() - next(iter(self._asked.values())) if self._asked else 0.0

    async def run(self, name: str, task: bytes) -> object:
        ticket, begin = object(), time.monotonic()
        self._asked[ticket] = begin
        try:
            await self._take_turn(name)
            try:
                answer = await self._try(name, task)
            finally:
                self._turn.release()
        finally:
            del self._asked[ticket]
            self._observe(name, time.monotonic() - begin)
        if len(answer) > _SMALL_BYTES:
            return await asyncio.to_thread(outcome, answer)
        return outcome(answer)

    async def answer(self) -> None:
        if self._process is not None and not self.waiting:
            await self.run(start.__name__, _task(start))

    async def save_rows(self) -> None:
        if self._process is not None and not self._process.channel.is_lost:
            await self.run(save_rows.__name__, _task(save_rows))

    async def stop(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            await process.ended()

    async def _take_turn(self, name: str) -> None:
        """Raises WorkersBusy."""
        try:
            async with asyncio.timeout(self._bounds.task_seconds):
                await self._turn.acquire()
        except TimeoutError:
            raise WorkersBusy(
                f"{name}: no worker process was free within {self._bounds.task_seconds:g} seconds"
                " (PGOF_TASK_SECONDS)"
            ) from None

    async def _try(self, name: str, task: bytes) -> bytes:
        """Return the answer to a task, of the process that there is or of one that takes its place.

        Raises TaskOutOfMemory, TaskTooSlow, WorkerLost, and OSError or EOFError.
        """
        for _ in range(_ATTEMPTS):
            process = await self._running(name)
            try:
                return await self._ask(process, task)
            except ChannelLost:
                await self._died(process, name)
            except _Hangs:
                _log.error("a worker process hangs, starting a new one", task=name)
                await self._kill(process, "hung")
            except TimeoutError:
                _log.error("a task takes too long, its worker process is replaced", task=name)
                await self._kill(process, "too_slow")
                raise TaskTooSlow(
                    f"{name} takes longer than {self._bounds.task_seconds:g} seconds (PGOF_TASK_SECONDS)"
                ) from None
        raise WorkerLost(f"the worker process died or hung under this request, {_ATTEMPTS} times")

    async def _ask(self, process: Process, task: bytes) -> bytes:
        """Ask a process, and look at it meanwhile. Raises ChannelLost, _Hangs and TimeoutError."""
        asking = process.channel.ask(task)
        watch = None
        try:
            async with asyncio.timeout(self._bounds.task_seconds):
                while not (await asyncio.wait([asking], timeout=LOOK_SECONDS))[0]:
                    watch = watch or await process.watch()
                    if await watch.hangs(LOOK_SECONDS):
                        raise _Hangs
        except asyncio.CancelledError:
            done, _ = await asyncio.wait([asking], timeout=_ABANDONED_SECONDS)
            if done:
                asking.exception()  # which nobody is told of any more
            else:
                _log.info("nobody waits for a task any more, its worker process is replaced")
                await self._kill(process, "abandoned")
            raise
        finally:
            asking.cancel()
        return asking.result()

    async def _running(self, name: str) -> Process:
        """Return the process, a new one if there is none any more. Raises OSError or EOFError."""
        process = self._process
        if process is not None and process.channel.is_lost:
            if process.channel.is_ending:
                _log.warning("a task needed too much memory, starting a new worker process")
                await self._end(process, "out_of_memory")
            else:
                with suppress(TaskOutOfMemory):  # whatever took the memory, this task wasn't it
                    await self._died(process, name)
        if self._process is None:
            self.rows_taken.value = 0
            self._oom_kills = await asyncio.to_thread(oom_kills)
            self._process = await Process.started(self._bounds, self._rows_folder, self.rows_taken)
        return self._process

    async def _died(self, process: Process, name: str) -> None:
        """Look after a process that has died. Raises TaskOutOfMemory if the kernel ended it for its memory:

        if it was killed, and the kernel has ended processes for that since it was started.
        """
        code = await self._end(process, "died")
        if code == -signal.SIGKILL and await asyncio.to_thread(oom_kills) > self._oom_kills:
            _log.error("the kernel ended a worker process for want of memory", task=name)
            raise TaskOutOfMemory.over(self._bounds.task_bytes)
        if code in _TERMINATED:
            _log.info("a worker process was terminated, starting a new one", task=name)
        else:
            _log.error("a worker process died, starting a new one", task=name, code=code)

    async def _kill(self, process: Process, reason: Replacement) -> None:
        process.kill()
        await self._end(process, reason)

    async def _end(self, process: Process, reason: Replacement) -> int | None:
        """Have the next task start a process in the place of this one; return its exit code."""
        self._process = None
        self._replaced[reason] += 1
        return await process.ended()


class _Hangs(Exception):
    """A process that has a task neither computes nor waits for a disk."""


def _task(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> bytes:
    """Return a call, as it travels."""
    return pickle.dumps((function, args, kwargs))


def start() -> None:
    """Do nothing: the first task, for which the fork server starts. Later it shows that a worker answers."""
