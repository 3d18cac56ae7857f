"""The pool of worker processes: the event loop calls the engine through it, and workers are replaced if
needed.

Every task gets an answer, whatever it does. A worker that dies, hangs, or takes too long or too much memory
is replaced. A task is tried again only if it may not have been the cause.
"""

from __future__ import annotations

import asyncio
import pickle
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, ParamSpec, Self, TypeVar, cast, get_args

import structlog
from pprof_merge.heap import trim_heap

from pgo_collector.engine.recent_profiles import worker_of
from pgo_collector.engine.row_cache import ROWS_FULL
from pgo_collector.engine.tasks import save_rows
from pgo_collector.errors import (
    Refusal,
    TaskOutOfMemory,
    TaskTooSlow,
    WorkerLost,
    WorkersBusy,
    WorkersUnusable,
    WorkerUnavailable,
)
from pgo_collector.resources import oom_kills
from pgo_collector.traces.spans import carried, span
from pgo_collector.workers.channel import ChannelLost, unpack_answer
from pgo_collector.workers.fork_server import UNKNOWN
from pgo_collector.workers.process import WATCH_SECONDS, Process, Start, WorkerBounds, start

P = ParamSpec("P")
T = TypeVar("T")

# Called for each task that has ended, with its name and the seconds since it was asked for.
Observer = Callable[[str, float], None]

# Why a worker process was replaced by another.
Replacement = Literal["died", "hung", "too_slow", "out_of_memory", "abandoned"]

# How often a task is tried whose process dies or hangs: the task may be the cause, but often isn't.
_ATTEMPTS = 3
# How long a task goes on whose caller has gone. Most end in that time, and a new process would have to read
# its rows again.
_ABANDONED_SECONDS = 2.0
# Exit codes after a SIGTERM, which is often sent to all processes of the server, also to the fork server.
_TERMINATED = {-signal.SIGTERM, UNKNOWN}
# Answers larger than this, such as a query's result, are unpickled in a thread.
_SMALL_BYTES = 64 << 10
_log = structlog.get_logger()


def unobserved(task: str, seconds: float) -> None:
    """Do nothing with an ended task, for a pool without metrics."""


class Workers:
    """The pool, an async context manager. Each process keeps rows in memory within its bounds, and in a
    folder that all share. A process is started when it gets its first task.
    """

    def __init__(
        self, count: int, bounds: WorkerBounds, rows_folder: Path, observe: Observer = unobserved
    ) -> None:
        self.replaced: Counter[Replacement] = Counter(dict.fromkeys(get_args(Replacement), 0))
        self.count = count
        self._workers = [
            _Worker(Start(number, count, bounds, rows_folder), observe, self.replaced)
            for number in range(count)
        ]

    async def __aenter__(self) -> Self:
        """Start one process. Raises WorkersUnusable."""
        try:
            await self.run(start)
        except (WorkerUnavailable, TaskOutOfMemory) as error:
            raise WorkersUnusable(f"no worker process can be started: {error}") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.save_rows()
        await asyncio.gather(*(worker.stop() for worker in self._workers))

    @property
    def busy(self) -> int:
        """Return how many workers have a task."""
        return sum(len(worker.asked) > 0 for worker in self._workers)

    @property
    def queued(self) -> int:
        """Return how many tasks wait for another task to end."""
        return sum(max(len(worker.asked) - 1, 0) for worker in self._workers)

    @property
    def oldest_task_seconds(self) -> float:
        """Return how long ago the oldest unanswered task was asked for, in seconds; 0 if there is none."""
        return max((worker.oldest_task_seconds for worker in self._workers), default=0.0)

    @property
    def task_seconds(self) -> float:
        """Return how long all tasks together have taken that have ended, with their waits."""
        return sum(worker.task_seconds for worker in self._workers)

    @property
    def rows_bytes(self) -> int:
        """Return the bytes of memory that the rows of all workers take, as of the last task of each."""
        return sum(worker.rows_bytes for worker in self._workers)

    def has_room_for_rows(self, owner: str) -> bool:
        """Return whether the worker that keeps the rows of `owner` has memory for more rows."""
        return self._worker_of(owner).has_room_for_rows

    async def ping(self) -> None:
        """Wait until every idle worker has answered; one that has died or hangs is replaced before.

        Raises WorkerUnavailable, also if no process can be started.
        """
        await asyncio.gather(*(worker.ping() for worker in self._workers))

    async def save_rows(self) -> None:
        """Have every worker write its rows to disk; a failure is logged."""
        for worker in self._workers:
            try:
                await worker.tell(save_rows)
            except (OSError, Refusal) as error:
                _log.warning("rows not saved", reason=str(error))

    async def trim_heaps(self) -> None:
        """Have every worker give free memory back. Raises what `run_for` raises."""
        for worker in self._workers:
            await worker.tell(trim_heap)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function of the engine, with small arguments, in the worker with the fewest tasks.

        Tries and raises as `run_for` does.
        """
        return await self._run_in(self._workers[0], function, *args, **kwargs)

    async def run_near(self, owner: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do the same; if it has no more tasks than others, in the worker that keeps the rows of `owner`."""
        return await self._run_in(self._worker_of(owner), function, *args, **kwargs)

    async def _run_in(
        self, preferred: _Worker, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        worker = min(self._workers, key=lambda worker: (len(worker.asked), worker is not preferred))
        task = pickle.dumps((function, args, kwargs, carried()))
        return cast("T", await worker.run(function.__name__, task))

    async def run_for(self, owner: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function of the engine in the worker that keeps the rows of `owner`; see `rows_owner`.

        The arguments may be large: they are pickled in a thread. The function is called up to three times if
        its worker dies or hangs. If the caller is cancelled, the task is ended soon after. Raises what the
        function raises, TaskOutOfMemory and WorkerUnavailable.
        """
        worker = self._worker_of(owner)
        task = await asyncio.to_thread(pickle.dumps, (function, args, kwargs, carried()))
        return cast("T", await worker.run(function.__name__, task))

    def _worker_of(self, owner: str) -> _Worker:
        return self._workers[worker_of(owner, len(self._workers))]


class _Worker:
    """One worker of the pool: its process, or the next one after that has ended."""

    def __init__(self, start: Start, observe: Observer, replaced: Counter[Replacement]) -> None:
        self.task_seconds = 0.0
        self._start = start
        self._bounds = start.bounds
        self._observe = observe
        self._replaced = replaced
        # When each unanswered task was asked for, in seconds of the monotonic clock; the oldest comes first.
        self.asked: dict[object, float] = {}
        # One task at a time is sent to the process, so that those that wait aren't lost when it dies.
        self._turn = asyncio.Lock()
        self._process: Process | None = None
        self._oom_kills = 0

    @property
    def oldest_task_seconds(self) -> float:
        return time.monotonic() - next(iter(self.asked.values())) if self.asked else 0.0

    @property
    def rows_bytes(self) -> int:
        return self._process.channel.rows_bytes if self._process is not None else 0

    @property
    def has_room_for_rows(self) -> bool:
        return self.rows_bytes < ROWS_FULL * self._bounds.rows_bytes

    async def run(self, name: str, task: bytes) -> object:
        """Have the process run a task, a pickle as `serve_tasks` reads it; return what it returns."""
        ticket, begin = object(), time.monotonic()
        self.asked[ticket] = begin
        with span("workers", name, task_bytes=len(task)):
            try:
                try:
                    with span("workers", "queue"):
                        async with asyncio.timeout(self._bounds.task_seconds):
                            await self._turn.acquire()
                except TimeoutError:
                    raise WorkersBusy(
                        f"{name}: no worker process was free within {self._bounds.task_seconds:g} seconds"
                        " (PGOF_TASK_SECONDS)"
                    ) from None
                try:
                    answer = await self._try(name, task)
                finally:
                    self._turn.release()
            finally:
                del self.asked[ticket]
                seconds = time.monotonic() - begin
                self.task_seconds += seconds
                self._observe(name, seconds)
            if len(answer) > _SMALL_BYTES:
                return await asyncio.to_thread(unpack_answer, answer)
            return unpack_answer(answer)

    async def ping(self) -> None:
        if self._process is not None and not self.asked:
            await self.run(start.__name__, pickle.dumps((start, (), {}, carried())))

    async def tell(self, function: Callable[[], None]) -> None:
        """Call a function in the process, if there is one."""
        if self._process is not None and not self._process.channel.is_lost:
            await self.run(function.__name__, pickle.dumps((function, (), {}, carried())))

    async def stop(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            await process.join()

    async def _try(self, name: str, task: bytes) -> bytes:
        """Return the pickled answer to a task, from the process or from one that replaces it.

        Raises TaskOutOfMemory, TaskTooSlow and WorkerLost.
        """
        reason = ""
        for _ in range(_ATTEMPTS):
            process = self._process
            if process is None or process.channel.is_lost:
                try:
                    process = await self._started(name)
                except (OSError, EOFError) as error:  # such as of one that is killed while it starts
                    reason = f": {error}"
                    _log.error("worker not started", task=name, reason=str(error))
                    continue
            try:
                return await self._ask(process, task)
            except ChannelLost:
                await self._died(process, name)
            except _Hangs:
                _log.error("worker hung", task=name)
                await self._kill(process, "hung")
            except TimeoutError:
                _log.error("task timed out", task=name)
                await self._kill(process, "too_slow")
                raise TaskTooSlow(
                    f"{name} takes longer than {self._bounds.task_seconds:g} seconds (PGOF_TASK_SECONDS)"
                ) from None
        raise WorkerLost(
            f"the worker process died, hung or wasn't started under this request, {_ATTEMPTS} times{reason}"
        )

    async def _ask(self, process: Process, task: bytes) -> bytes:
        """Send a task to a process and watch it until it answers.

        Raises ChannelLost, _Hangs and TimeoutError.
        """
        asking = process.channel.ask(task)
        watch = None
        try:
            async with asyncio.timeout(self._bounds.task_seconds):
                while not (await asyncio.wait([asking], timeout=WATCH_SECONDS))[0]:
                    watch = watch or await process.watch()
                    if await watch.hangs(WATCH_SECONDS):
                        raise _Hangs
        except asyncio.CancelledError:
            done, _ = await asyncio.wait([asking], timeout=_ABANDONED_SECONDS)
            if done:
                asking.exception()  # marks it as retrieved, since the caller has gone
            else:
                _log.info("task abandoned")
                await self._kill(process, "abandoned")
            raise
        finally:
            asking.cancel()
        return asking.result()

    async def _started(self, name: str) -> Process:
        """Return a new process in place of one that is lost, if there was one. Raises OSError or EOFError."""
        if (process := self._process) is not None:
            if process.channel.is_ending:
                _log.warning("worker memory exceeded")
                await self._end(process, "out_of_memory")
            else:
                with suppress(TaskOutOfMemory):  # this task hasn't begun, so it didn't take the memory
                    await self._died(process, name)
        self._oom_kills = await asyncio.to_thread(oom_kills)
        with span("workers", "start process"):
            self._process = await Process.start(self._start)
        return self._process

    async def _died(self, process: Process, name: str) -> None:
        """Log why a process has died, and have the next task start another.

        Raises TaskOutOfMemory if the process was killed, and the kernel has ended processes for lack of
        memory since it was started.
        """
        code = await self._end(process, "died")
        if code == -signal.SIGKILL and await asyncio.to_thread(oom_kills) > self._oom_kills:
            _log.error("worker killed by kernel", task=name)
            raise TaskOutOfMemory.over(self._bounds.task_bytes)
        if code in _TERMINATED:
            _log.info("worker terminated", task=name)
        else:
            _log.error("worker died", task=name, code=code)

    async def _kill(self, process: Process, reason: Replacement) -> None:
        process.kill()
        await self._end(process, reason)

    async def _end(self, process: Process, reason: Replacement) -> int | None:
        """Wait for a process to end and have the next task start another; return the exit code."""
        self._process = None
        self._replaced[reason] += 1
        return await process.join()


class _Hangs(Exception):
    """A process with a task neither computes nor waits for a disk."""
