"""The fork server of the workers, beside children that end all at once."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator

import pytest
from pgo_collector.workers.fork_server import Child, ForkServer

pytestmark = pytest.mark.any_store


@pytest.fixture
def fork_server() -> Iterator[ForkServer]:
    fork_server = ForkServer()
    yield fork_server
    assert fork_server.pid is not None
    os.kill(fork_server.pid, signal.SIGKILL)
    os.waitpid(fork_server.pid, 0)


def _wait(end: socket.socket) -> None:
    with end:
        signal.pause()


def forked(fork_server: ForkServer) -> Child:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        return fork_server.fork(_wait, theirs)


def test_it_outlives_many_that_are_killed_at_once_and_tells_how_each_ended(fork_server: ForkServer) -> None:
    first = forked(fork_server)
    pid = fork_server.pid
    for _ in range(2):
        children = [forked(fork_server) for _ in range(40)]
        for child in reversed(children):  # it looks for the first one first, and is told of others meanwhile
            os.kill(child.pid, signal.SIGKILL)
        assert {child.wait(60) for child in children} == {-signal.SIGKILL}
    assert fork_server.pid == pid
    first.kill()
    assert first.wait(60) == -signal.SIGKILL
