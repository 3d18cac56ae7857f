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
from tempfile import TemporaryFile
from typing import IO, Any, Final, NoReturn

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
    """The zygote process, with the variables of `environment` added."""

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
        """Fork a child that runs the command with these arguments in this environment.

        Its standard output and error are one pipe.
        """
        readable, writable = os.pipe()
        try:
            child = self._fork(arguments, environment, writable, writable)
        finally:
            os.close(writable)
        return Child(child, os.fdopen(readable, "rb"), self._socket)

    def run(self, arguments: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        with TemporaryFile() as output, TemporaryFile() as errors:
            child = self._fork(arguments, environment, output.fileno(), errors.fileno())
            code = Child(child, None, self._socket).wait(_PATIENCE_SECONDS)
            output.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(
                arguments, code, output.read().decode(), errors.read().decode()
            )

    def _fork(self, arguments: list[str], environment: Mapping[str, str], output: int, errors: int) -> int:
        self._socket.settimeout(_PATIENCE_SECONDS)
        order = json.dumps([arguments, dict(environment)]).encode()
        socket.send_fds(self._socket, [order], [output, errors])
        return int(self._socket.recv(_MESSAGE_BYTES))

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


class Child:
    """A forked process with the methods of `subprocess.Popen`."""

    def __init__(self, pid: int, output: IO[bytes] | None, zygote: socket.socket) -> None:
        self.pid = pid
        self.stderr = output
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
            self._zygote.send(json.dumps(self.pid).encode())
            self._zygote.settimeout(timeout)
            self._code = int(self._zygote.recv(_MESSAGE_BYTES))
        return self._code


class ForkedServer(Server):
    """`pgo-collector serve`, and its other commands, as children of a zygote."""

    def __init__(self, home: Path, zygote: Zygote, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(home, environment)
        self._zygote = zygote

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._zygote.run([*arguments], self.environment)

    def _spawn(self, *arguments: str) -> Process:
        return self._zygote.fork([*arguments], self.environment)


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
    """Run the zygote: a message with arguments forks a child, one with a child's id waits for its end."""
    # A child that neither collects nor frees what was imported leaves those pages shared.
    gc.collect()
    gc.freeze()
    children: set[int] = set()
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        while True:
            order, descriptors, _, _ = socket.recv_fds(orders, _MESSAGE_BYTES, 2)
            if not order:  # the test is gone, and its servers go too
                for child in children:
                    os.kill(child, signal.SIGKILL)
                return
            wanted = json.loads(order)
            if isinstance(wanted, int):
                _, status = os.waitpid(wanted, 0)
                children.discard(wanted)
                orders.send(str(os.waitstatus_to_exitcode(status)).encode())
                continue
            child = os.fork()
            if not child:
                orders.close()
                arguments, environment = wanted
                _become(arguments, environment, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            children.add(child)
            orders.send(str(child).encode())


def _become(arguments: list[str], environment: Mapping[str, str], descriptors: Sequence[int]) -> NoReturn:
    """Run the command in a forked child."""
    os.environ.clear()
    os.environ.update(environment)
    for standard, descriptor in zip((1, 2), descriptors, strict=True):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    util.spawnv_passfds = _fork_program
    sys.exit(main(arguments))
