"""A channel to a worker process: tasks go one way, and what they return or raise comes back the other.

Either way a message is its length and a pickle. The event loop reads its end itself, so that no thread has to
wake up between a request and its answer.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
import traceback
from collections import deque
from contextlib import suppress
from typing import Any, cast

_LENGTH = struct.Struct("=Q")


class ChannelLost(Exception):
    """The process at the other end is gone, and with it the tasks that it had."""


class Channel(asyncio.Protocol):
    """The event loop's end. Tasks are answered in the order in which they were asked."""

    def __init__(self) -> None:
        self.is_lost = False
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See Protocol."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See Protocol. Nobody may wait any more for what comes."""
        self._received += data
        while len(self._received) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._received)
            end = _LENGTH.size + length
            if len(self._received) < end:
                return
            answer = bytes(memoryview(self._received)[_LENGTH.size : end])
            del self._received[:end]
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it was
        """See Protocol."""
        self.is_lost = True
        for future in self._waiting:
            if not future.done():
                future.set_exception(ChannelLost())

    async def ask(self, task: bytes) -> bytes:
        """The answer to a task, both as they travel. Raises ChannelLost."""
        if self.is_lost:
            raise ChannelLost
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._transport.writelines((_LENGTH.pack(len(task)), task))
        return await future

    def close(self) -> None:
        """Tells the process to end when it has done what it was asked."""
        self._transport.close()


def answer_all(end: socket.socket) -> None:
    """The worker's end: does task after task, until the other end is closed."""
    with end, end.makefile("rb") as tasks, suppress(ConnectionError):
        while len(length := tasks.read(_LENGTH.size)) == _LENGTH.size:
            answer = _answer(tasks.read(*_LENGTH.unpack(length)))
            end.sendall(_LENGTH.pack(len(answer)) + answer)


def _answer(task: bytes) -> bytes:
    try:
        function, args, kwargs = pickle.loads(task)  # noqa: S301 - from our own process
        return pickle.dumps((function(*args, **kwargs), None))
    except BaseException as error:  # noqa: BLE001 - whoever asked is told of all
        error.add_note(f"In a worker process:\n{''.join(traceback.format_exception(error))}")
        return pickle.dumps((None, error))


def outcome(answer: bytes) -> Any:
    """What the task returned. Raises what it raised."""
    value, error = pickle.loads(answer)  # noqa: S301 - from our own process
    if error is not None:
        raise error
    return value
