"""A worker process: how it is started, watched and ended, and what it does before its first task."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import resource
import signal
import socket
import threading
from contextlib import suppress
from ctypes import c_int64
from multiprocessing import forkserver
from pathlib import Path
from typing import NamedTuple, Self

import structlog
from pprof_merge.heap import keep_heap

from pgo_collector.engine.merge_inputs import ROW_CACHE
from pgo_collector.engine.validation import BODY_TIME
from pgo_collector.model.name_patterns import PATTERN_TIME
from pgo_collector.resources import ProcessStatus, limit_data, prefer_oom_kill, process_status
from pgo_collector.workers.channel import Channel, serve_tasks

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


class Process:
    """A worker process. The fork server starts it in milliseconds: it has the engine loaded, and, unlike this
    process, no threads.
    """

    def __init__(
        self, process: multiprocessing.process.BaseProcess, channel: Channel, waits_seconds: float
    ) -> None:
        self._process = process
        self._waits_seconds = waits_seconds
        self.channel = channel

    @classmethod
    async def start(cls, bounds: WorkerBounds, rows_folder: Path, rows_used: c_int64) -> Self:
        """Start a process that keeps rows in a folder and writes to `rows_used` how many bytes they take.

        Raises OSError or EOFError.
        """
        # The workers share the cores out; threads of the libraries would only compete with them.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = context.Process(
                    target=_work, args=(theirs, bounds, rows_folder, rows_used), daemon=True
                )
                await _start(process)
            except BaseException:
                ours.close()
                raise
        _, channel = await asyncio.get_running_loop().create_unix_connection(Channel, sock=ours)
        return cls(process, channel, bounds.waits_seconds)

    async def watch(self) -> Watch:
        """Return a watch over it, to be asked regularly while it has a task."""
        return await Watch.over(self._process.pid or 0, self._waits_seconds)

    def kill(self) -> None:
        """Kill it at once, whatever it does."""
        self._process.kill()

    async def join(self) -> int | None:
        """Tell the process to end after its tasks, wait until it has ended, and return its exit code.

        A process that doesn't end in time is killed. The code is None if it doesn't end even then, as when a
        disk doesn't answer, or if the fork server doesn't report it.
        """
        self.channel.close()
        for _ in range(2):
            await asyncio.to_thread(self._process.join, _END_SECONDS)
            if self._process.exitcode is not None:
                break
            self._process.kill()
        code = self._process.exitcode
        if code is not None:
            self._process.close()
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


async def _start(process: multiprocessing.process.BaseProcess) -> None:
    """Start a process; replace a fork server that hangs. Raises OSError or EOFError."""
    starting = asyncio.create_task(asyncio.to_thread(process.start))
    watch = None
    while not (await asyncio.wait([starting], timeout=WATCH_SECONDS))[0]:
        # The process id of the fork server has no public name.
        pid = getattr(forkserver, "_forkserver")._forkserver_pid  # noqa: B009, SLF001
        if pid is None:
            continue
        watch = watch or await Watch.over(pid)
        if await watch.hangs(WATCH_SECONDS):
            _log.error("fork server hung")
            os.kill(pid, signal.SIGKILL)
            with suppress(OSError, EOFError):
                await starting
            # Until it has ended, multiprocessing takes it for one that runs.
            with suppress(ChildProcessError):
                await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            starting, watch = asyncio.create_task(asyncio.to_thread(process.start)), None
    await starting


def _work(end: socket.socket, bounds: WorkerBounds, rows_folder: Path, rows_used: c_int64) -> None:
    """Run tasks until the server closes the channel or ends. Ctrl-C is ignored: the server handles it."""
    keep_heap()
    gc.freeze()  # what the fork server has loaded stays shared with it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # There may be thousands of mapped files of rows, which all stay open.
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    ROW_CACHE.most_bytes, ROW_CACHE.folder, ROW_CACHE.used_bytes = bounds.rows_bytes, rows_folder, rows_used
    PATTERN_TIME.seconds = bounds.pattern_seconds
    BODY_TIME.bound(bounds.body_seconds)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    prefer_oom_kill()
    limit_data(bounds.rows_bytes + bounds.task_bytes)
    serve_tasks(end, bounds.task_bytes)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
