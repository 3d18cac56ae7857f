"""A zygote: a process that has the command loaded, and forks a child for each start of the collector.

A start costs a fork and not an import of everything, for tests that start it hundreds of times.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import thread
from itertools import pairwise
from multiprocessing import util
from pathlib import Path
from typing import IO, Any, Final

import pgo_collector.serve.server  # noqa: F401 - `main` imports it only to serve
from pgo_collector.command.cli import main

from tests.server import Process, Server

_MESSAGE_BYTES: Final = 1 << 16
_PATIENCE_SECONDS: Final = 120.0
_DESCRIPTORS: Final = 1 << 16
# Not a file: the workers of the collector would import it again, as they do with any main module.
_PROGRAM: Final = "from tests.faults.zygote import serve_forks; serve_forks()"
_ROOT: Final = Path(__file__).parents[2]


class Zygote:
    """The zygote process, with the variables of `environment` added; it has one child at a time."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=_ROOT,
                env=os.environ | environment,
            )

    def fork(self, arguments: list[str], environment: Mapping[str, str]) -> Child:
        """Fork a child that runs the command with these arguments in this environment."""
        self._socket.settimeout(_PATIENCE_SECONDS)
        readable, writable = os.pipe()
        order = json.dumps([arguments, dict(environment)]).encode()
        socket.send_fds(self._socket, [order], [writable])
        os.close(writable)
        return Child(int(self._socket.recv(_MESSAGE_BYTES)), readable, self._socket)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


class Child:
    """A forked process with the methods of `subprocess.Popen`, standard output and error in one pipe."""

    def __init__(self, pid: int, output: int, zygote: socket.socket) -> None:
        self.pid = pid
        self.stderr: IO[bytes] | None = os.fdopen(output, "rb")
        self._zygote = zygote
        self._code: int | None = None

    def _signal(self, number: int) -> None:
        if self._code is None:
            os.kill(self.pid, number)  # until the zygote is told to reap it, the id is its own

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, negative for a signal. Raises TimeoutError."""
        if self._code is None:
            self._zygote.send(b"reap")
            self._zygote.settimeout(timeout)
            self._code = int(self._zygote.recv(_MESSAGE_BYTES))
        return self._code


class ForkedServer(Server):
    """`pgo-collector serve` as a child of a zygote."""

    def __init__(self, home: Path, zygote: Zygote, environment: Mapping[str, str]) -> None:
        super().__init__(home, environment)
        self._zygote = zygote

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        child = self._zygote.fork(list(arguments), self.environment)
        assert child.stderr is not None
        with child.stderr as pipe:
            output = pipe.read().decode()
        return subprocess.CompletedProcess(arguments, child.wait(), "", output)

    def _spawn(self, *arguments: str) -> Process:
        return self._zygote.fork(list(arguments), self.environment)


def _fork_program(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
    """Fork a process for the fork server of multiprocessing, or its resource tracker, and return its id.

    `args` are those of an interpreter, of which the last is a program; only the file descriptors of
    `passfds` stay open. The modules that it would import are there already.
    """
    del path
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        # It is forked in a thread of an executor; at its end it would wait for that thread, which is its own.
        thread._threads_queues.clear()  # type: ignore[attr-defined]  # noqa: SLF001
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for low, high in pairwise([2, *sorted(passfds), _DESCRIPTORS]):
            os.closerange(low + 1, high)
        exec(args[-1], {})  # noqa: S102 - the program that multiprocessing would have started
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        os._exit(code)


def serve_forks() -> None:
    """Run the zygote: fork at one message, reap at the next."""
    # A child that neither collects nor frees what was imported leaves those pages shared.
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        while True:
            order, descriptors, _, _ = socket.recv_fds(orders, _MESSAGE_BYTES, 1)
            if not order:
                return
            arguments, environment = json.loads(order)
            child = os.fork()
            if not child:
                orders.close()
                os.environ.clear()
                os.environ.update(environment)
                for standard in (1, 2):
                    os.dup2(descriptors[0], standard)
                os.close(descriptors[0])
                util.spawnv_passfds = _fork_program
                sys.exit(main(arguments))
            os.close(descriptors[0])
            orders.send(str(child).encode())
            if not orders.recv(_MESSAGE_BYTES):  # the test is gone, and its server goes too
                os.kill(child, signal.SIGKILL)
                return
            _, status = os.waitpid(child, 0)
            orders.send(str(os.waitstatus_to_exitcode(status)).encode())
