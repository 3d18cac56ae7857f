"""A zygote: a process that has the command loaded, and forks a child for each start of the collector.

A start costs a fork and not an import of everything, for tests that start it hundreds of times. Variables
that an interpreter or the loader of programs reads, such as LD_PRELOAD, must be the zygote's own; a child
that has the killer (tests/faults/killer.c) loaded begins to be watched by it.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import fcntl
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import thread
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from multiprocessing import util
from pathlib import Path
from select import select
from tempfile import TemporaryDirectory, TemporaryFile
from types import MappingProxyType
from typing import IO, Any, Final, NoReturn
from unittest.mock import patch

import uvloop

_MESSAGE_BYTES: Final = 1 << 16
_PATIENCE_SECONDS: Final = 120.0
_DESCRIPTORS: Final = 1 << 16
_MOST_DESCRIPTORS: Final = 8
_BEYOND_HELD: Final = 1 + _MOST_DESCRIPTORS
# Not a file: the workers of the collector would import it again, as they do with any main module.
_PROGRAM: Final = "from tests import zygote; zygote.serve_forks()"
_ROOT: Final = Path(__file__).parents[1]


class Zygote:
    """Starts commands by a process that runs `program`, with the variables of `environment` added."""

    def __init__(
        self, environment: Mapping[str, str] = MappingProxyType({}), program: str = _PROGRAM
    ) -> None:
        self._environment = environment
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._socket, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_PATIENCE_SECONDS)
        self._lock = threading.Lock()

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], *held: int) -> Child:
        """Fork a child that runs the command with these arguments in this environment.

        Its standard output and error are one pipe. It gets the sockets `held` as systemd passes them.
        """
        readable, writable = os.pipe()
        try:
            child = self._fork(arguments, environment, writable, writable, *held)
        finally:
            os.close(writable)
        return Child(child, os.fdopen(readable, "rb"), self._reap)

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        with TemporaryFile() as output, TemporaryFile() as errors:
            child = self._fork(arguments, environment, output.fileno(), errors.fileno())
            code = Child(child, None, self._reap).wait(_PATIENCE_SECONDS)
            output.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(
                arguments, code, output.read().decode(), errors.read().decode()
            )

    def _fork(self, arguments: Sequence[str], environment: Mapping[str, str], *descriptors: int) -> int:
        return self._ask([[*arguments], dict(environment)], descriptors)

    def _reap(self, child: int) -> int:
        return self._ask(child, ())

    def _ask(self, order: object, descriptors: Sequence[int]) -> int:
        with self._lock:
            self._begin()
            socket.send_fds(self._socket, [json.dumps(order).encode()], descriptors)
            return int(self._socket.recv(_MESSAGE_BYTES))

    def _begin(self) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", self._program, str(self._theirs.fileno())],
                pass_fds=[self._theirs.fileno()],
                cwd=_ROOT,
                env=os.environ | self._environment,
            )
            self._theirs.close()

    def close(self) -> None:
        """End the process, and with it all that it has forked."""
        self._socket.close()
        self._theirs.close()
        if self._process is not None:
            self._process.wait()


class Child:
    """A forked process with the methods of `subprocess.Popen`."""

    def __init__(self, pid: int, output: IO[bytes] | None, reap: Callable[[int], int]) -> None:
        self.pid = pid
        self.stderr = output
        self._reap = reap
        self._code: int | None = None

    def _signal(self, number: int) -> None:
        if self._code is None:
            os.kill(self.pid, number)  # until it is reaped, the id is its own

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, negative for a signal. Raises TimeoutError."""
        if self._code is None:
            ended = os.pidfd_open(self.pid)
            try:
                if not select([ended], [], [], timeout)[0]:
                    raise TimeoutError
            finally:
                os.close(ended)
            self._code = self._reap(self.pid)
        return self._code


def _fork_program(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
    """Fork a process for a fork server that takes the place of another, and return its id.

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
        exec(args[-1], {})  # noqa: S102 - the program that the interpreter would have run
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        os._exit(code)


def serve_forks() -> None:
    """Run the zygote of the collector."""
    from pgo_collector.command.cli import main  # noqa: PLC0415 - only the zygote's process needs it

    # What a server imports when it starts: `main` itself and uvicorn do.
    for late in (
        "pgo_collector.serve.first_look",
        "pgo_collector.serve.opened",
        "pgo_collector.serve.server",
        "pydantic.v1",
        "uvicorn.lifespan.off",
        "encodings.idna",
    ):
        import_module(late)
    with suppress(ImportError):  # the oldest versions are tested without extras
        import_module("psycopg")

    _serve_once(main)
    fork_on_orders(main)


def fork_on_orders(main: Callable[[list[str]], int]) -> None:
    """Fork a child for each message with arguments, and reap it for one with the id of an ended child."""
    # A child that neither collects nor frees what was imported leaves those pages shared.
    gc.collect()
    gc.freeze()
    children: set[int] = set()
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        while True:
            order, descriptors, _, _ = socket.recv_fds(orders, _MESSAGE_BYTES, _MOST_DESCRIPTORS)
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
                _become(environment, descriptors)
                _end(main(arguments))
            for descriptor in descriptors:
                os.close(descriptor)
            children.add(child)
            orders.send(str(child).encode())


def _end(code: object) -> NoReturn:
    """End a child as an interpreter does, but don't free its memory, which would copy each page first."""
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


def _serve_once(main: Callable[[list[str]], object]) -> None:
    """Serve on a folder of its own and stop, so that children have what a first start computes.

    That takes CPU time: imports within functions, and the caches of SQLAlchemy. The loop is asyncio's, since
    a process that has had one of libuv's closes two descriptors in each fork: in a worker, those of others.
    """
    readable, writable = os.pipe()
    outputs = [(number, os.dup(number)) for number in (1, 2)]
    before = dict(os.environ)
    with TemporaryDirectory() as home:
        keys = Path(home, "keys")
        keys.write_text("key\n")
        os.environ |= {
            "PGOF_BIND_ADDRESS": "127.0.0.1:0",
            "PGOF_DIRECTORY": str(Path(home, "data")),
            "PGOF_SUBMIT_AUTH_KEYS_FILE": str(keys),
            "PGOF_MERGE_AUTH_KEYS_FILE": str(keys),
        }
        for number, _ in outputs:
            os.dup2(writable, number)
        os.close(writable)
        stopping = threading.Thread(target=_stop_when_it_serves, args=(readable,))
        stopping.start()
        try:
            with patch.object(uvloop, "run", asyncio.run):
                main(["serve"])
        finally:
            for number, output in outputs:
                os.dup2(output, number)
                os.close(output)
    stopping.join()
    os.environ.clear()
    os.environ.update(before)


def _stop_when_it_serves(readable: int) -> None:
    with os.fdopen(readable) as log:
        for line in log:
            if '"serving"' in line:
                os.kill(os.getpid(), signal.SIGTERM)


def set_constants(environment: Mapping[str, str]) -> None:
    """Change the constants of the collector's modules that variables name in full.

    `pgo_collector.submits.captures._MOST_AT_ONCE` is one. Its workers, which are forked, have them as well.
    """
    for name, text in environment.items():
        if name.startswith("pgo_collector."):
            module, _, constant = name.rpartition(".")
            found = import_module(module)
            setattr(found, constant, type(getattr(found, constant))(text))


def _become(environment: Mapping[str, str], descriptors: Sequence[int]) -> None:
    """Take the environment and the descriptors of a command: output, errors and held sockets."""
    os.environ.clear()
    os.environ.update(environment)
    set_constants(environment)
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _BEYOND_HELD) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for number, descriptor in enumerate(moved, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if held := len(descriptors) - 2:
        os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(held)}
    if not environment.get(
        "PGOF_STORAGE"
    ):  # the client of a bucket has threads, without which it can't be forked
        util.spawnv_passfds = _fork_program
    if "FAULTS_CONTROL" in environment:
        ctypes.CDLL(None).watch_folder()
