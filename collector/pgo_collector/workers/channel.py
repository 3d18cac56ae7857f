"""The channel to a worker process: tasks go to it, and what they return or raise comes back.

A message is its length and a pickle; an answer's length is followed by whether it is the last one of this
process, and how many bytes its rows take then. A task for a traced request says so, and its answer has the
spans of what it did. The event loop reads its end of the socket itself, so that no thread has to wake up
between a request and its answer.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, cast

from pgo_collector.errors import TaskOutOfMemory
from pgo_collector.traces.spans import Fields, adopt, recorded_here

_TASK = struct.Struct("=Q")
_ANSWER = struct.Struct("=Q?Q")


class ChannelLost(Exception):
    """The process at the other end has ended, without answering its tasks."""


class Channel(asyncio.Protocol):
    """The event loop's end of the channel. Tasks are answered in the order in which they were sent.

    The process has rows of `rows_bytes`, as of its last answer. The channel `is_lost` when the process has
    ended or is about to, and `is_ending` if it said so with its last answer.
    """

    def __init__(self) -> None:
        self.rows_bytes = 0
        self.is_lost = self.is_ending = False
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; see asyncio.BaseProtocol."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Settle the futures of complete answers, unless they were cancelled; see asyncio.Protocol."""
        self._received += data
        while len(self._received) >= _ANSWER.size:
            length, is_last, rows_bytes = _ANSWER.unpack_from(self._received)
            end = _ANSWER.size + length
            if len(self._received) < end:
                return
            answer = bytes(memoryview(self._received)[_ANSWER.size : end])
            del self._received[:end]
            self.rows_bytes = rows_bytes
            if is_last:
                self.is_lost = self.is_ending = True
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the cause makes no difference
        """Fail the tasks without an answer with ChannelLost; see asyncio.BaseProtocol."""
        self.is_lost = True
        for future in self._waiting:
            if not future.done():
                future.set_exception(ChannelLost())

    def ask(self, task: bytes) -> asyncio.Future[bytes]:
        """Send a task; return the future of its pickled answer, which may fail with ChannelLost."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self.is_lost:
            future.set_exception(ChannelLost())
        else:
            self._waiting.append(future)
            self._transport.writelines((_TASK.pack(len(task)), task))
        return future

    def close(self) -> None:
        """Tell the process to end once it has answered its tasks."""
        self._transport.close()


class _Answer(NamedTuple):
    pickled: bytes
    is_last: bool


def serve_tasks(end: socket.socket, memory_bytes: int, rows_bytes: Callable[[], int]) -> None:
    """Run tasks at the worker's end, until the other end is closed or a task runs out of memory.

    After running out of memory the process ends, since what it has in memory may be inconsistent.
    `memory_bytes` is the memory that a task may use, for the message; `rows_bytes` returns that of the rows.
    """
    with end, end.makefile("rb") as tasks, suppress(ConnectionError):
        while len(length := tasks.read(_TASK.size)) == _TASK.size:
            answer = _answer(tasks, _TASK.unpack(length)[0], memory_bytes)
            end.sendall(_ANSWER.pack(len(answer.pickled), answer.is_last, rows_bytes()))
            end.sendall(answer.pickled)
            if answer.is_last:
                return


def _answer(tasks: Any, length: int, memory_bytes: int) -> _Answer:
    failure: BaseException
    spans: list[Fields] = []
    try:
        function, args, kwargs, trace = pickle.loads(tasks.read(length))  # noqa: S301 - from our own process
        with recorded_here(trace) as spans:
            result = function(*args, **kwargs)
        return _Answer(pickle.dumps((result, None, spans)), is_last=False)
    except MemoryError as error:
        where = "".join(traceback.format_exception(error))
        failure = TaskOutOfMemory.over(memory_bytes)
    except BaseException as error:  # noqa: BLE001 - the server's process raises it
        where = "".join(traceback.format_exception(error))
        failure = error
    # Only here, after the except block, are the frames of the failed task and their memory released.
    failure.add_note(f"In a worker process:\n{where}")
    return _Answer(pickle.dumps((None, failure, spans)), is_last=isinstance(failure, TaskOutOfMemory))


def unpack_answer(answer: bytes) -> Any:
    """Return what the task returned, or raise what it raised. Its spans go to the trace of the caller."""
    value, error, spans = pickle.loads(answer)  # noqa: S301 - from our own process
    if spans:
        adopt(spans)
    if error is not None:
        raise error
    return value
