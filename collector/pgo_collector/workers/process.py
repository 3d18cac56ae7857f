"""A worker process: how it is started, watched and ended, and what it does before its first task."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

import structlog
from pprof_merge.heap import keep_heap

from pgo_collector.engine.merge_inputs import ROW_CACHE
from pgo_collector.engine.recent_profiles import RECENT
from pgo_collector.engine.validation import BODY_TIME
from pgo_collector.model.name_patterns import PATTERN_TIME
from pgo_collector.resources import ProcessStatus, limit_data, prefer_oom_kill, process_status
from pgo_collector.workers.channel import Channel, serve_tasks
from pgo_collector.workers.fork_server import FORK_SERVER, Child

# The pause between two looks at a process with a task.
WATCH_SECONDS = 0.5
_END_SECONDS = 10.0
# How long a process may be stopped by a signal, so that a debugger can look at it, and how long it may be
# idle, before it counts as hanging.
_STOPPED_SECONDS = 1.5
_IDLE_SECONDS = 10.0
_log = structlog.get_logger()


class WorkerBounds(NamedTuple):
    """The bounds of one worker process: memory for rows and for a task, in bytes, and seconds for a task.

    `pattern_seconds` is the CPU time for the patterns of names in a task, and `body_seconds` that for each
    MiB of a submitted body.
    `waits_seconds` is how long a task may wait for the storage of blobs before it counts as hanging.
    """

    rows_bytes: int
    task_bytes: int
    task_seconds: float
    pattern_seconds: float
    body_seconds: float
    waits_seconds: float = 0.0


class Start(NamedTuple):
    """How a worker process is started: its number among all `workers`, its bounds, and the folder of rows."""

    number: int
    workers: int
    bounds: WorkerBounds
    rows_folder: Path


class Process:
    """A worker process."""

    def __init__(self, child: Child, channel: Channel, waits_seconds: float) -> None:
        self._child = child
        self._waits_seconds = waits_seconds
        self.channel = channel

    @classmethod
    async def start(cls, start: Start) -> Self:
        """Start a process. Raises OSError or EOFError."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                child = await _fork(theirs, start)
            except BaseException:
                ours.close()
                raise
        _, channel = await asyncio.get_running_loop().create_unix_connection(Channel, sock=ours)
        return cls(child, channel, start.bounds.waits_seconds)

    async def watch(self) -> Watch:
        """Return a watch over it, to be asked regularly while it has a task."""
        return await Watch.over(self._child.pid, self._waits_seconds)

    def kill(self) -> None:
        """Kill it at once, whatever it does."""
        self._child.kill()

    async def join(self) -> int | None:
        """Tell the process to end after its tasks, wait until it has ended, and return its exit code.

        A process that doesn't end in time is killed. The code is None if it doesn't end even then, as when a
        disk doesn't answer, or if the fork server doesn't report it.
        """
        self.channel.close()
        for _ in range(2):
            code = await asyncio.to_thread(self._child.wait, _END_SECONDS)
            if code is not None:
                break
            self._child.kill()
        return code


class Watch:
    """Tells a process that hangs from a busy one, by its state and the CPU time that it uses.

    A process that waits for a disk is busy. Time is counted in looks, so that a pause of the watching process
    isn't taken for one of the watched process.
    """

    def __init__(self, pid: int, status: ProcessStatus | None, waits_seconds: float) -> None:
        self._pid = pid
        self._idle_seconds = _IDLE_SECONDS + waits_seconds
        self._last = status
        self._stopped = self._idle = 0.0

    @classmethod
    async def over(cls, pid: int, waits_seconds: float = 0.0) -> Self:
        """Begin to watch a process, which may wait so long for something other than a disk."""
        return cls(pid, await asyncio.to_thread(process_status, pid), waits_seconds)

    async def hangs(self, seconds: float) -> bool:
        """Look at the process, `seconds` after the last look; return whether it hangs."""
        last, now = self._last, await asyncio.to_thread(process_status, self._pid)
        self._last = now
        if last is None or now is None or now.cpu_ticks != last.cpu_ticks:
            self._stopped = self._idle = 0.0
            return False
        self._stopped = self._stopped + seconds if now.is_stopped else 0.0
        self._idle = self._idle + seconds if now.is_waiting else 0.0
        return self._stopped >= _STOPPED_SECONDS or self._idle >= self._idle_seconds


async def _fork(end: socket.socket, start: Start) -> Child:
    """Fork a process; replace a fork server that hangs. Raises OSError or EOFError."""

    def begin() -> asyncio.Task[Child]:
        return asyncio.create_task(asyncio.to_thread(FORK_SERVER.fork, _work, end, start))

    forking, watch = begin(), None
    while not (await asyncio.wait([forking], timeout=WATCH_SECONDS))[0]:
        if (pid := FORK_SERVER.pid) is None:
            continue
        watch = watch or await Watch.over(pid)
        if await watch.hangs(WATCH_SECONDS):
            _log.error("fork server hung")
            os.kill(pid, signal.SIGKILL)
            with suppress(OSError, EOFError):
                await forking
            forking, watch = begin(), None
    return await forking


def _work(end: socket.socket, start: Start) -> None:
    """Run tasks until the server closes the channel. Ctrl-C is ignored: the server handles it."""
    keep_heap()
    gc.freeze()  # what the fork server has loaded stays shared with it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # There may be thousands of mapped files of rows, which all stay open.
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    number, workers, bounds, rows_folder = start
    ROW_CACHE.most_bytes, ROW_CACHE.folder = bounds.rows_bytes, rows_folder
    RECENT.open(number, workers, bounds.task_bytes, ROW_CACHE.add)
    PATTERN_TIME.seconds = bounds.pattern_seconds
    BODY_TIME.bound(bounds.body_seconds)
    prefer_oom_kill()
    limit_data(bounds.rows_bytes + bounds.task_bytes)
    serve_tasks(end, bounds.task_bytes, lambda: ROW_CACHE.used_bytes)


def start() -> None:
    """Do nothing, in a worker: the first task shows that one can be started, later ones that it runs.

    It stands in this module since the workers have it; to import one more would copy pages that they share.
    """
