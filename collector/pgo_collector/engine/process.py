"""A worker process: how one is started, and what it does before its first task."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import signal
import socket
import threading
from ctypes import c_int64
from pathlib import Path
from typing import Self

from pprof_merge.heap import keep_heap

from pgo_collector.engine.channel import Channel, answer_all
from pgo_collector.engine.collected import SHELF


class Process:
    """A process of the fork server, which has the engine loaded and, unlike this process, no threads: it is
    there in milliseconds.
    """

    def __init__(self, process: multiprocessing.process.BaseProcess, channel: Channel) -> None:
        self._process = process
        self.channel = channel

    @classmethod
    async def started(cls, rows_bytes: int, rows_folder: Path, rows_taken: c_int64) -> Self:
        """One that may take so many bytes for its rows, and says how many it takes.

        Raises OSError or EOFError.
        """
        # Workers are the threads here; the libraries' own would only compete with them.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = context.Process(
                    target=_work, args=(theirs, rows_bytes, rows_folder, rows_taken), daemon=True
                )
                await asyncio.to_thread(process.start)
            except BaseException:
                ours.close()
                raise
        _, channel = await asyncio.get_running_loop().create_unix_connection(Channel, sock=ours)
        return cls(process, channel)

    async def ended(self) -> None:
        """Returns when it has ended; it is told to after what it was asked."""
        self.channel.close()
        await asyncio.to_thread(self._process.join)
        self._process.close()


def _work(end: socket.socket, rows_bytes: int, rows_folder: Path, rows_taken: c_int64) -> None:
    """In each worker: Ctrl-C is the server's to handle, and a server that is gone is the worker's end."""
    keep_heap()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A file of rows that is mapped stays open, and there may be thousands.
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    SHELF.most_bytes, SHELF.folder, SHELF.taken = rows_bytes, rows_folder, rows_taken
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    answer_all(end)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
