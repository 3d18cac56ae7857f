"""A channel to a worker process: tasks go one way, and what they return or raise comes back the other.

Either way a message is its length and a pickle; an answer's length is followed by whether it is the last one
of this process. The event loop reads its end itself, so that no thread has to wake up between a request and
its answer.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
import traceback
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple, cast

from pgo_collector.errors import TaskOutOfMemory

_TASK = struct.Struct("=Q")
_ANSWER = struct.Struct("=Q?")


class ChannelLost(Exception):
    """The process at the other end is gone, and with it the tasks that it had."""


class Channel(asyncio.Protocol):
    """The event loop's end. Tasks are answered in the order in which they were asked.

    It `is_lost` when the process is gone, or `is_ending`, having said that this was its last answer.
    """

    def __init__(self) -> None:
        self.is_lost = self.is_ending = False
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See Protocol."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See Protocol. Nobody may be waiting any more for the answer that comes."""
        self._received += data
        while len(self._received) >= _ANSWER.size:
            length, is_last = _ANSWER.unpack_from(self._received)
            end = _ANSWER.size + length
            if len(self._received) < end:
                return
            answer = bytes(memoryview(self._received)[_ANSWER.size : end])
            del self._received[:end]
            if is_last:
                self.is_lost = self.is_ending = True
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it was
        """See Protocol."""
        self.is_lost = True
        for future in self._waiting:
            if not future.done():
                future.set_exception(ChannelLost())

    def ask(self, task: bytes) -> asyncio.Future[bytes]:
        """Send a task; return what becomes its answer, as it travels, or raises ChannelLost."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self.is_lost:
            future.set_exception(ChannelLost())
        else:
            self._waiting.append(future)
            self._transport.writelines((_TASK.pack(len(task)), task))
        return future

    def close(self) -> None:
        """Tell the process to end when it has done what it was asked."""
        self._transport.close()


class _Answer(NamedTuple):
    pickled: bytes
    is_last: bool


def answer_all(end: socket.socket, memory_bytes: int) -> None:
    """Do task after task at the worker's end, until the other end is closed or one runs out of memory.

    After that, what the process has in memory may be half of something, so it ends. `memory_bytes` is what a
    task may take, for the message.
    """
    with end, end.makefile("rb") as tasks, suppress(ConnectionError):
        while len(length := tasks.read(_TASK.size)) == _TASK.size:
            answer = _answer(tasks, _TASK.unpack(length)[0], memory_bytes)
            end.sendall(_ANSWER.pack(len(answer.pickled), answer.is_last))
            end.sendall(answer.pickled)
            if answer.is_last:
                return


def _answer(tasks: Any, length: int, memory_bytes: int) -> _Answer:
    failure: BaseException
    try:
        function, args, kwargs = pickle.loads(tasks.read(length))  # noqa: S301 - from our own process
        return _Answer(pickle.dumps((function(*args, **kwargs), None)), is_last=False)
    except MemoryError as error:
        where = "".join(traceback.format_exception(error))
        failure = TaskOutOfMemory.over(memory_bytes)
    except BaseException as error:  # noqa: BLE001 - whoever asked is told of all
        where = "".join(traceback.format_exception(error))
        failure = error
    # Only here have the frames of a task that ran out of memory gone, with what they held.
    failure.add_note(f"In a worker process:\n{where}")
    return _Answer(pickle.dumps((None, failure)), is_last=isinstance(failure, TaskOutOfMemory))


def outcome(answer: bytes) -> Any:
    """Return what the task returned. Raises what it raised."""
    value, error = pickle.loads(answer)  # noqa: S301 - from our own process
    if error is not None:
        raise error
    return value
