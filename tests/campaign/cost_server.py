"""A collector whose costs are measured: CPU time and memory of its processes, and turns of its event loop.

As a module, it serves as `pgo-collector serve` does, on asyncio's own event loop, which notes the CPU time of
its longest turn in the file that `TURNS` names. CPU time tells costs on a busy machine, too.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import httpx
from hpack import Decoder

from tests.campaign.collector import Collector
from tests.campaign.cost_parts import DATA, END_STREAM, GO_AWAY, HEADERS, PREFACE, RESET, Place
from tests.collector.mutants import fill
from tests.processes import state_of
from tests.server import Process, descendants

TURNS = "CAMPAIGN_TURNS"
_NANOSECONDS = struct.Struct("<Q")
_SETTINGS = {
    "PGOF_WORKERS": "1", "PGOF_ROWS_MEGABYTES": "64", "PGOF_METRICS_OPEN": "1",
    "PGOF_GRPC_ADDRESS": "127.0.0.1:0",
}  # fmt: skip
_POLL_SECONDS = 0.004
_LOOK_SECONDS = 0.02
# A process that takes less CPU time than this between two looks does nothing.
_IDLE_SECONDS = 0.0005
_LONGEST_WAIT = 30.0
# What is read of an answer, and the bytes before the payload of a frame of HTTP/2.
_MOST_READ = 1 << 12
_FRAME_HEAD = 9
# A worker that holds so much more than another one did at first would hide what the next request takes.
_MOST_HELD = 48 << 20
# A store grows with each request, and pages that list it with it.
_MOST_REQUESTS = 500


class Costs(NamedTuple):
    """The costs of some requests: CPU time in s, memory in bytes; `status` is that of the last answer.

    `has_ended` is false if they were stopped because they took too much.
    """

    worker: float
    server: float
    turn: float
    memory: int
    status: int
    has_ended: bool


class MeasuredServer:
    """A collector that is started again when a request has damaged it; as a context manager."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._server: _Serving | None = None
        # The next one starts meanwhile: many requests are found out by one that has to be stopped.
        self._starting = ThreadPoolExecutor(1)
        self._next: Future[_Serving] | None = None
        self.starts = self._requests = self._held = 0
        self.place = Place("", "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._next is not None:
            self._server = self._next.result()
            self.stop()
        self._starting.shutdown()

    def stop(self) -> None:
        """Kill the server and delete what it has stored."""
        if self._server is not None:
            self._server.kill()
            shutil.rmtree(self._server.home, ignore_errors=True)
            self._server = None

    def description(self) -> Any:
        """Return the OpenAPI description of its routes."""
        self.next_place()
        assert self._server is not None
        return self._server.client.get("/v1/openapi.json").json()

    def next_place(self) -> None:
        """Have the next requests name another service; take the next server if none runs."""
        if self._server is None:
            following = self._next or self._starting.submit(self._started, 1)
            self._server = following.result()
            self.starts += 1
            self._requests = self._held = 0
            self._next = self._starting.submit(self._started, self.starts + 1)
        self._requests += 1
        self.place = Place(f"s{self.starts % 100:02}{self._requests:05}", self._server.session)

    def _started(self, number: int) -> _Serving:
        """Return a server that has some profiles."""
        server = _Serving(self._scratch / f"server-{number}")
        server.start()
        fill(server)
        server.sign_in()
        return server

    def costs(self, requests: Sequence[bytes], most_seconds: float) -> Costs:
        """Send requests one after another, and return what they cost; stop at so much CPU time."""
        server = self._server
        assert server is not None, "take a place first"
        before = _Memory.of(server.process.pid)
        server.turns[:] = bytes(_NANOSECONDS.size)
        clocks = _Clocks(server.process.pid)
        status, has_ended = 0, True
        for content in requests:
            status = _ask(server.address_for(content), content, lambda: clocks.total < most_seconds)
            has_ended &= status >= 0
            if not has_ended:
                break
        has_ended = has_ended and clocks.wait_until_idle(most_seconds)
        (turn,) = _NANOSECONDS.unpack(server.turns[:])
        longest = turn / 1e9 if has_ended or clocks.server < most_seconds / 2 else clocks.server
        after = _Memory.of(server.process.pid)
        grown = after.grown_since(before)
        costs = Costs(clocks.workers, clocks.server, longest, grown, max(status, 0), has_ended)
        self._held = self._held or after.held
        if not has_ended or after.held > self._held + _MOST_HELD or self._requests > _MOST_REQUESTS:
            self.stop()
        return costs


class _Serving(Collector):
    """A collector that is started by this module.

    `turns` has the longest turn of its loop, and `session` the token of a session of its pages.
    """

    def __init__(self, home: Path) -> None:
        home.mkdir()
        file = home / "turns"
        file.write_bytes(bytes(_NANOSECONDS.size))
        with file.open("r+b") as opened:
            self.turns = mmap.mmap(opened.fileno(), 0)
        super().__init__(home, {**_SETTINGS, TURNS: str(file)})
        self.session = ""

    def sign_in(self) -> None:
        """Begin a session of the pages."""
        answer = httpx.post(
            f"{self.base_url}/ui/sign-in",
            content=f"key={self.merge_key}",
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )
        self.session = answer.cookies.get("pgo_session") or ""

    def address_for(self, content: bytes) -> str:
        """Return the host and port that a request is sent to: calls of gRPC have their own."""
        if content.startswith(PREFACE):
            return str(self.wait_for_log("listening for gRPC")["address"])
        return self.base_url.removeprefix("http://")

    def _spawn(self, *arguments: str) -> Process:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.campaign.cost_server", *arguments],
            stderr=subprocess.PIPE,
            env=self.environment,
            start_new_session=True,
        )
        self.spawned.append(process.pid)
        return process


class _Clocks:
    """The CPU time of a server and its other processes since it was made, with those that have ended."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began = {each: cpu_seconds(each) for each in self._pids()}
        self._read: dict[int, float] = {}
        self.server = self.workers = 0.0

    @property
    def total(self) -> float:
        """The CPU time of all processes until now."""
        for pid in self._pids():
            with suppress(OSError):
                self._read[pid] = cpu_seconds(pid) - self._began.get(pid, 0.0)
        self.server = self._read.get(self._pid, 0.0)
        self.workers = sum(self._read.values()) - self.server
        return self.server + self.workers

    def wait_until_idle(self, most_seconds: float) -> bool:
        """Wait until no process does anything; return whether that took less CPU time than `most_seconds`."""
        last, quiet, ends = self.total, 0, time.monotonic() + _LONGEST_WAIT
        while quiet < 2:
            time.sleep(_POLL_SECONDS)
            total = self.total
            is_busy = total > last + _IDLE_SECONDS or any(state_of(pid) in {"R", "D"} for pid in self._pids())
            quiet, last = 0 if is_busy else quiet + 1, total
            if total > most_seconds or time.monotonic() > ends:
                return False
        return True

    def _pids(self) -> list[int]:
        return [self._pid, *descendants(self._pid)]


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process with all its threads. Raises OSError if it has ended."""
    return time.clock_gettime(~pid << 3 | 2)  # what clock_getcpuclockid returns


class _Memory(NamedTuple):
    """The memory of processes in bytes by id: now, and at most since it was last asked for."""

    now: dict[int, int]
    most: dict[int, int]

    @classmethod
    def of(cls, pid: int) -> _Memory:
        now, most = {}, {}
        for each in (pid, *descendants(pid)):
            with suppress(OSError):
                lines = Path(f"/proc/{each}/status").read_text().splitlines()
                sizes = {line.partition(":")[0]: line.split()[1] for line in lines if line.endswith(" kB")}
                now[each], most[each] = (int(sizes[name]) << 10 for name in ("VmRSS", "VmHWM"))
                Path(f"/proc/{each}/clear_refs").write_text("5")
        return cls(now, most)

    @property
    def held(self) -> int:
        """The memory of the largest process now."""
        return max(self.now.values(), default=0)

    def grown_since(self, before: _Memory) -> int:
        """Return by how much the process has grown most that has grown most."""
        smallest = min(before.now.values(), default=0)
        return max((most - before.now.get(pid, smallest) for pid, most in self.most.items()), default=0)


def _ask(address: str, content: bytes, may_go_on: Callable[[], bool]) -> int:
    """Send a request; return the status of the answer, 0 if there is none, -1 if it took too long."""
    host, _, port = address.rpartition(":")
    is_call = content.startswith(PREFACE)
    answer, unsent, ends = b"", memoryview(content), time.monotonic() + _LONGEST_WAIT
    with socket.create_connection((host, int(port))) as connection, suppress(ConnectionError):
        connection.setblocking(False)
        while may_go_on() and time.monotonic() < ends:
            wanted = [connection] if unsent else []
            readable, writable, _ = select.select([connection], wanted, [], _LOOK_SECONDS)
            if writable:
                unsent = unsent[connection.send(unsent[: 1 << 20]) :]
            if readable:
                if not (part := connection.recv(1 << 16)):
                    break
                answer = (answer + part)[:_MOST_READ]
                if is_call and (said := _answer_of(answer)) is not None:
                    return 200 if (b"grpc-status", b"0") in said else 400
        else:
            return -1
    status = answer[9:12]
    return int(status) if status.isdigit() and not is_call else 0


def _answer_of(frames: bytes) -> list[tuple[bytes, bytes]] | None:
    """Return all fields of the answer to a call, from frames of HTTP/2; None if it has no end yet."""
    decoder, fields = Decoder(), list[tuple[bytes, bytes]]()
    while len(frames) >= _FRAME_HEAD:
        size, kind, flags = int.from_bytes(frames[:3]), frames[3], frames[4]
        if len(frames) < _FRAME_HEAD + size:
            return None
        if kind == HEADERS:
            fields += decoder.decode(frames[_FRAME_HEAD : _FRAME_HEAD + size], raw=True)
        if kind in {RESET, GO_AWAY} or (kind in {DATA, HEADERS} and flags & END_STREAM):
            return fields
        frames = frames[_FRAME_HEAD + size :]
    return None


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that notes the CPU time of its longest turn."""

    def __init__(self) -> None:
        super().__init__()
        with Path(os.environ[TURNS]).open("r+b") as file:
            self._turns = mmap.mmap(file.fileno(), 0)

    def _run_once(self) -> None:
        began = time.thread_time_ns()
        super()._run_once()  # type: ignore[misc]  # asyncio's own
        took = time.thread_time_ns() - began
        if took > _NANOSECONDS.unpack(self._turns[:])[0]:
            self._turns[:] = _NANOSECONDS.pack(took)


def _run(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main)


if __name__ == "__main__":
    import uvloop
    from pgo_collector.command.cli import main

    uvloop.run = _run  # type: ignore[assignment]  # it hides its turns
    sys.exit(main())
