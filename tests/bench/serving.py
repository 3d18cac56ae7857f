"""Servers, measured while they serve: what requests over a connection that is kept cost all their processes.

A server runs as `ours`, as pgo-fleet's way (see gobench.go), or as profefe, where a program of it is given.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

from tests.bench.measure import Cost
from tests.server import Server, descendants

_TIMEOUT = 900.0
_PAUSE = 0.05
# Who took less CPU in a pause than this is done with what was asked of it: seconds.
_IDLE = 0.002
_LIBC = ctypes.CDLL(None, use_errno=True)


class Request(NamedTuple):
    """To a server; `key` is the one that it asks for, `etag` that of an answer that the client has."""

    method: str
    path: str
    body: bytes | None = None
    key: str = ""
    etag: str = ""
    cookie: str = ""


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes
    etag: str


class Serving:
    """A server that listens at `address`, host:port; `pid` is the process that started all others of it."""

    def __init__(self, pid: int, address: str) -> None:
        self._pid = pid
        self._address = address
        self._connection = HTTPConnection(address, timeout=_TIMEOUT)

    def ask(self, request: Request) -> Answer:
        """Sends a request, and reads all of the answer. Raises RuntimeError where that is an error."""
        headers = {
            "Authorization": f"Bearer {request.key}",
            "If-None-Match": request.etag,
            "Cookie": request.cookie,
        }
        self._connection.request(request.method, request.path, request.body, headers)
        response = self._connection.getresponse()
        answer = Answer(response.status, response.read(), response.headers.get("ETag", ""))
        if answer.status >= 400:
            raise RuntimeError(f"{request.method} {request.path}: {answer.status} {answer.body[:500]!r}")
        return answer

    def cost(self, tasks: Sequence[Sequence[Request]], clients: int = 1) -> Cost:
        """What a task costs on an average, a task being requests one after another: CPU until all processes
        rest again, the clock until the answers are there, and the most memory that they had meanwhile. So
        many clients share the tasks, each with a connection that it keeps.
        """
        self._connection.close()  # the server does so, after a while without requests
        before = self.settled()
        with self._watched() as sizes:
            began = time.perf_counter()
            with ThreadPoolExecutor(clients) as pool:
                list(pool.map(self._work, (tasks[client::clients] for client in range(clients))))
            wall = time.perf_counter() - began
        return Cost((self.settled() - before) / len(tasks), wall / len(tasks), max(sizes))

    def settled(self) -> float:
        """The CPU seconds of all its processes, once they have nothing more to do."""
        before = self._cpu_seconds()
        while True:
            time.sleep(_PAUSE)
            now = self._cpu_seconds()
            if now - before < _IDLE:
                return now
            before = now

    def memory(self) -> float:
        """The memory that its processes have of their own, in MiB: without pages of files, which the kernel
        can take back.
        """
        return sum(map(_memory, self._pids()))

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()

    def _work(self, tasks: Sequence[Sequence[Request]]) -> None:
        """Does tasks as a client of its own."""
        client = Serving(self._pid, self._address)
        for task in tasks:
            for request in task:
                client.ask(request)
        client.close()

    @contextmanager
    def _watched(self) -> Iterator[list[float]]:
        """Sizes of its memory, from now on until the end."""
        sizes = [self.memory()]
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_PAUSE):
                sizes.append(self.memory())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield sizes
        finally:
            ended.set()
            watcher.join()

    def _pids(self) -> list[int]:
        return [self._pid, *descendants(self._pid)]

    def _cpu_seconds(self) -> float:
        return sum(map(_cpu_seconds, self._pids()))


@contextmanager
def ours(server: Server) -> Iterator[Serving]:
    """A collector that runs."""
    serving = Serving(server.process.pid, server.base_url.removeprefix("http://"))
    yield serving
    serving.close()


@contextmanager
def pgo_fleets_way(gobench: Path, folder: Path) -> Iterator[Serving]:
    """See gobench.go; what is submitted goes to the folder, and all that is there is merged."""
    folder.mkdir(exist_ok=True)
    with subprocess.Popen([gobench, "serve", folder], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        with _served(process, process.stdout.readline().strip()) as serving:
            yield serving


@contextmanager
def profefe(program: Path, folder: Path) -> Iterator[Serving]:
    """Profefe, over the store that it has on a disk of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    command: list[str | Path] = [
        program, "-addr", address, "-storage-type", "badger", "-badger.dir", folder,
    ]  # fmt: skip
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
        while not _listens(address):
            assert process.poll() is None, f"{program} ended"
            time.sleep(_PAUSE)
        with _served(process, address) as serving:
            yield serving


@contextmanager
def _served(process: subprocess.Popen[str] | subprocess.Popen[bytes], address: str) -> Iterator[Serving]:
    serving = Serving(process.pid, address)
    try:
        yield serving
    finally:
        serving.close()
        process.kill()


def _listens(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as client:
        return client.connect_ex((host, int(port))) == 0


def _cpu_seconds(pid: int) -> float:
    """Of a process, with those of its threads that have ended."""
    clock = ctypes.c_int()
    if failed := _LIBC.clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise OSError(failed, os.strerror(failed))
    return time.clock_gettime(clock.value)


def _memory(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("RssAnon:"))
    return int(kilobytes) / 1024
