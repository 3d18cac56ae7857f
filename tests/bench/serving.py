"""Servers, measured while they serve: the cost of requests on a kept connection for all their processes.

A server runs as `ours`, as pgo-fleet's way (see gobench.go), or as profefe, if there is a binary of it.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from tests.bench.measure import Cost
from tests.server import Server, descendants

_TIMEOUT = 900.0
_PAUSE = 0.05
# Processes that take less CPU time (s) than this during a pause have finished their work.
_IDLE = 0.002
_LIBC = ctypes.CDLL(None, use_errno=True)


class Request(NamedTuple):
    """A request to a server; `key` is what it needs, `etag` that of an answer that the client has."""

    method: str
    path: str
    body: bytes | None = None
    key: str = ""
    etag: str = ""
    cookie: str = ""
    headers: tuple[tuple[str, str], ...] = ()


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    body: bytes
    etag: str


class Serving:
    """A server at `address`, host:port; `pid` is the process that started all its others.

    `others` are further servers of the same kind, among which clients are spread.
    """

    def __init__(self, pid: int, address: str, *others: tuple[int, str]) -> None:
        self._pid = pid
        self._address = address
        self._others = others
        self._connection = HTTPConnection(address, timeout=_TIMEOUT)

    def ask(self, request: Request) -> Answer:
        """Send a request and read its whole answer. Raises RuntimeError if the answer is an error."""
        headers = {
            "Authorization": f"Bearer {request.key}",
            "If-None-Match": request.etag,
            "Cookie": request.cookie,
            **dict(request.headers),
        }
        self._connection.request(request.method, request.path, request.body, headers)
        response = self._connection.getresponse()
        answer = Answer(response.status, response.read(), response.headers.get("ETag", ""))
        if answer.status >= 400:
            raise RuntimeError(f"{request.method} {request.path}: {answer.status} {answer.body[:500]!r}")
        return answer

    def cost(self, tasks: Sequence[Sequence[Request]], clients: int = 1, *, is_at_once: bool = False) -> Cost:
        """Return the mean cost of a task, which is a series of requests.

        It has the CPU time until all processes rest again, the wall-clock time until the answers arrive, the
        peak memory, and the time of the slowest tasks. The tasks are divided among `clients` clients, each
        with a connection that it keeps. They begin when all processes rest, or `is_at_once`: then what these
        still do counts, too.
        """
        self._connection.close()  # as the server does after a while without requests
        before = self.cpu_seconds() if is_at_once else self.settled()
        with sampled(self.memory, _PAUSE) as sizes:
            began = time.perf_counter()
            with ThreadPoolExecutor(clients) as pool:
                taken = list(
                    pool.map(self._work, range(clients), (tasks[n::clients] for n in range(clients)))
                )
            wall = time.perf_counter() - began
        slowest = sorted(chain(*taken))[int(0.99 * len(tasks))]
        return Cost((self.settled() - before) / len(tasks), wall / len(tasks), max(sizes), slowest)

    def settled(self) -> float:
        """Return the CPU seconds of all processes, once they have nothing left to do."""
        before = self.cpu_seconds()
        while True:
            time.sleep(_PAUSE)
            now = self.cpu_seconds()
            if now - before < _IDLE:
                return now
            before = now

    def memory(self) -> float:
        """Return the memory of its processes in MiB: without file pages, which can be freed."""
        return sum(_pages(pid, "Pss_Anon") for pid in self._pids())

    def shared_memory(self) -> float:
        """Return the memory of its processes in MiB, with file pages; a page of several counts once."""
        return sum(_pages(pid, "Pss") for pid in self._pids())

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _work(self, number: int, tasks: Sequence[Sequence[Request]]) -> list[float]:
        """Do tasks as one client; return how many seconds each took."""
        every, taken = ((self._pid, self._address), *self._others), list[float]()
        client = Serving(*every[number % len(every)])
        for task in tasks:
            began = time.perf_counter()
            for request in task:
                client.ask(request)
            taken.append(time.perf_counter() - began)
        client.close()
        return taken

    def _pids(self) -> list[int]:
        pids = (self._pid, *(pid for pid, _ in self._others))
        return [each for pid in pids for each in (pid, *descendants(pid))]

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all processes until now."""
        return sum(map(_cpu_seconds, self._pids()))


@contextmanager
def ours(*servers: Server) -> Iterator[Serving]:
    """Return a running collector, or several that share what they store."""
    serving, *others = ((server.process.pid, server.base_url.removeprefix("http://")) for server in servers)
    one = Serving(*serving, *others)
    yield one
    one.close()


@contextmanager
def pgo_fleets_way(gobench: Path, folder: Path) -> Iterator[Serving]:
    """Run pgo-fleet's way (see gobench.go): submits go to the folder, and all its profiles are merged."""
    folder.mkdir(exist_ok=True)
    with subprocess.Popen([gobench, "serve", folder], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        with _served(process, process.stdout.readline().strip()) as serving:
            yield serving


@contextmanager
def profefe(program: Path, folder: Path) -> Iterator[Serving]:
    """Run profefe with its own storage on disk."""
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


@contextmanager
def sampled(measure: Callable[[], float], pause: float) -> Iterator[list[float]]:
    """Yield a list that gets what `measure` returns until the end of the block.

    `pause` is in seconds, between two calls.
    """
    values = [measure()]
    with repeated(lambda: values.append(measure()), pause):
        yield values


@contextmanager
def repeated(work: Callable[[], None], pause: float) -> Iterator[None]:
    """Do some work in a thread until the end of the block, each time after `pause` seconds."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(pause):
            work()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process and of its threads that have ended."""
    clock = ctypes.c_int()
    if failed := _LIBC.clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise OSError(failed, os.strerror(failed))
    return time.clock_gettime(clock.value)


def _pages(pid: int, field: str) -> float:
    """Return a field of /proc/PID/smaps_rollup in MiB: pages of n processes count as a n-th in each."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(kilobytes) / 1024


def largest_memory(pids: Sequence[int]) -> float:
    """Return the private memory in MiB of the largest of these processes, some of which may have ended."""
    sizes = [0.0]
    for each in pids:
        with suppress(OSError, ValueError):  # it has just ended
            sizes.append(_memory(each))
    return max(sizes)


def _memory(pid: int) -> float:
    """Return the private memory of a process in MiB: without file pages. ValueError: it has none any more."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("RssAnon:"))
    return int(kilobytes) / 1024
